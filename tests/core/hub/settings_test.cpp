#include "core/hub/settings.h"

#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

constexpr const char* kVariables[] = {"HF_ENDPOINT",
                                      "HF_TOKEN",
                                      "HUGGING_FACE_HUB_TOKEN",
                                      "HF_TOKEN_PATH",
                                      "HF_HUB_OFFLINE",
                                      "TRANSFORMERS_OFFLINE",
                                      "HF_HOME",
                                      "HF_HUB_CACHE",
                                      "HUGGINGFACE_HUB_CACHE",
                                      "XDG_CACHE_HOME",
                                      "HF_HUB_ETAG_TIMEOUT",
                                      "HF_HUB_DOWNLOAD_TIMEOUT",
                                      "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                      "HOME"};

class Settings : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
    }
    set("HOME", folder_.path());
  }
  void TearDown() override {
    for (const char* name : kVariables) {
      if (before_.count(name) > 0) {
        set(name, before_[name]);
      } else {
        ::unsetenv(name);
      }
    }
  }

  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  std::string home(const std::string& path) const { return folder_.path() / path; }

  test::TemporaryFolder folder_;
  std::map<std::string, std::string> before_;
};

TEST_F(Settings, WithoutVariablesAreThePublicHubAndTheUsersCache) {
  const HubSettings settings = hub_settings_from_environment();
  EXPECT_EQ(settings.endpoint.origin(), "https://huggingface.co");
  EXPECT_EQ(settings.cache, home(".cache/huggingface/hub"));
  EXPECT_TRUE(settings.token.empty());
  EXPECT_FALSE(settings.offline);
}

TEST_F(Settings, TheCacheFollowsTheVariablesInTheirOrder) {
  const auto cache = [] { return hub_settings_from_environment().cache; };
  set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(cache(), "/xdg/huggingface/hub");
  set("HF_HOME", "~/hf");
  EXPECT_EQ(cache(), home("hf/hub"));
  set("HUGGINGFACE_HUB_CACHE", "/old");
  EXPECT_EQ(cache(), "/old");
  set("HF_HUB_CACHE", "$HOME/${XDG_CACHE_HOME}/$unset/x");
  EXPECT_EQ(cache(), folder_.path().string() + "//xdg/$unset/x");
}

TEST_F(Settings, TheTokenComesFromTheVariableOrTheFile) {
  const auto token = [] { return hub_settings_from_environment().token; };
  folder_.write(".cache/huggingface/token", "hf_file\n");
  EXPECT_EQ(token(), "hf_file");
  set("HF_TOKEN_PATH", folder_.write("elsewhere", " hf_else "));
  EXPECT_EQ(token(), "hf_else");
  set("HUGGING_FACE_HUB_TOKEN", "hf_old");
  EXPECT_EQ(token(), "hf_old");
  set("HF_TOKEN", "hf_new\r\n");
  EXPECT_EQ(token(), "hf_new");
  set("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
  EXPECT_EQ(token(), "");
}

TEST_F(Settings, ATokenCannotSmuggleAHeader) {
  set("HF_TOKEN", "hf_a\r\nX-Evil: 1");
  test::expect_error(ErrorKind::kUsage, HasSubstr("token"),
                     [] { hub_settings_from_environment(); });
}

TEST_F(Settings, OfflineIsAnyOfTheUsualWords) {
  for (const char* word : {"1", "ON", "yes", "True"}) {
    set("HF_HUB_OFFLINE", word);
    EXPECT_TRUE(hub_settings_from_environment().offline) << word;
  }
  set("HF_HUB_OFFLINE", "0");
  set("TRANSFORMERS_OFFLINE", "1");
  EXPECT_FALSE(hub_settings_from_environment().offline);
  ::unsetenv("HF_HUB_OFFLINE");
  EXPECT_TRUE(hub_settings_from_environment().offline);
}

TEST_F(Settings, AnEndpointMayHaveAPathAndMustBeHttp) {
  set("HF_ENDPOINT", "http://127.0.0.1:5000/hub/");
  const Url url = hub_settings_from_environment().endpoint;
  EXPECT_EQ(url.text(), "http://127.0.0.1:5000/hub");
  set("HF_ENDPOINT", "127.0.0.1:5000");
  test::expect_error(ErrorKind::kUsage, HasSubstr("HF_ENDPOINT"),
                     [] { hub_settings_from_environment(); });
}

TEST_F(Settings, TimeoutsAreSeconds) {
  set("HF_HUB_DOWNLOAD_TIMEOUT", "42");
  EXPECT_EQ(hub_settings_from_environment().stall_timeout.count(), 42);
  set("HF_HUB_ETAG_TIMEOUT", "soon");
  test::expect_error(ErrorKind::kUsage, HasSubstr("HF_HUB_ETAG_TIMEOUT: 'soon'"),
                     [] { hub_settings_from_environment(); });
}

}  // namespace
}  // namespace haul::core
