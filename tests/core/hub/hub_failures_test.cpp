#include <atomic>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/base/file.h"
#include "tests/core/hub/hub_fixture.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;
using test::ServerAnswer;
using test::ServerRequest;
using testing::AllOf;
using testing::HasSubstr;

class HubFailure : public HubTest {
 protected:
  // Every answer to the listing becomes this.
  void answer_listing(int status, const std::string& code) {
    server_.alter = [=](const ServerRequest& request, ServerAnswer& answer) {
      if (!request.path.starts_with("/api/")) return;
      answer = {};
      answer.status = status;
      if (!code.empty()) answer.headers = {{"X-Error-Code", code}};
    };
  }

  void list_file(const std::string& entry) {
    server_.alter = [=, this](const ServerRequest& request, ServerAnswer& answer) {
      if (!request.path.starts_with("/api/")) return;
      answer.body = fmt::format(R"({{"sha": "{}", "siblings": [{}]}})", model().commit, entry);
    };
  }

  void expect_nothing_kept() {
    EXPECT_FALSE(fs::exists(cache("snapshots/" + model().commit + "/model.safetensors")));
    EXPECT_FALSE(fs::exists(cache("blobs/" + test::sha256_of(weights()))));
  }

  std::string hint_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.hint();
    }
    return "no error";
  }
};

TEST_F(HubFailure, AnUnknownModelIsNotFound) {
  test::expect_error(ErrorKind::kNotFound,
                     AllOf(HasSubstr("org/absent: no such model on http://127.0.0.1"),
                           HasSubstr("nor a file or folder")),
                     [&] { resolve(Need::kAll, "org/absent"); });
}

TEST_F(HubFailure, WithoutATokenAHubMayHideWhatDoesNotExist) {
  answer_listing(401, "");
  HubSettings anonymous = settings();
  anonymous.token.clear();
  const HubModel model(anonymous, *parse_hub_name(kTestModel), "");
  test::expect_error(ErrorKind::kNotFound, HasSubstr("no such model"),
                     [&] { model.resolve(Need::kAll); });
  EXPECT_THAT(hint_of([&] { model.resolve(Need::kAll); }), HasSubstr("HF_TOKEN"));
  test::expect_error(ErrorKind::kResource, HasSubstr("does not accept the token"),
                     [&] { resolve(Need::kAll); });
}

TEST_F(HubFailure, AGatedModelTellsWhatToDo) {
  for (const int status : {401, 403}) {
    answer_listing(status, "GatedRepo");
    test::expect_error(ErrorKind::kResource, HasSubstr("org/tiny: the model is gated"),
                       [&] { resolve(Need::kAll); });
    EXPECT_THAT(hint_of([&] { resolve(Need::kAll); }),
                AllOf(HasSubstr("accept"), HasSubstr("HF_TOKEN"), HasSubstr("/org/tiny")));
  }
}

TEST_F(HubFailure, AGateAtTheFilesIsToldToo) {
  server_.alter = [](const ServerRequest& request, ServerAnswer& answer) {
    if (!request.path.starts_with("/org/tiny/resolve")) return;
    answer = {};
    answer.status = 403;
    answer.headers = {{"X-Error-Code", "GatedRepo"}};
  };
  test::expect_error(ErrorKind::kResource, HasSubstr("gated"), [&] { resolve(Need::kAll); });
}

TEST_F(HubFailure, AnUnknownRevisionIsNamed) {
  test::expect_error(ErrorKind::kNotFound, HasSubstr("has no revision 'v9'"),
                     [&] { resolve(Need::kAll, "org/tiny@v9"); });
}

TEST_F(HubFailure, AFileThatWentAwayIsNamed) {
  list_file(R"({"rfilename": "gone.json"})");
  test::expect_error(ErrorKind::kNotFound, HasSubstr("org/tiny/gone.json: no such file"),
                     [&] { download(); });
}

TEST_F(HubFailure, NoNetworkIsToldAtOnceWithTheAddress) {
  HubSettings nowhere = settings();
  nowhere.endpoint = parse_url("http://127.0.0.1:1");
  nowhere.endpoint.target.clear();
  nowhere.first_wait = std::chrono::hours(1);
  const HubModel model(nowhere, *parse_hub_name(kTestModel), "");
  test::expect_error(ErrorKind::kResource, HasSubstr("cannot reach http://127.0.0.1:1"),
                     [&] { model.resolve(Need::kAll); });
  nowhere.endpoint = parse_url("http://no-such-host.invalid");
  const HubModel unknown(nowhere, *parse_hub_name(kTestModel), "");
  test::expect_error(ErrorKind::kResource, HasSubstr("cannot reach http://no-such-host.invalid"),
                     [&] { unknown.resolve(Need::kAll); });
}

TEST_F(HubFailure, WeightsInTheCacheServeWithoutANetwork) {
  download();
  fs::remove(cache("snapshots/" + model().commit + "/tokenizer.json"));
  HubSettings nowhere = settings();
  nowhere.endpoint = parse_url("http://127.0.0.1:1");
  const HubModel model(nowhere, *parse_hub_name(kTestModel), "");
  EXPECT_FALSE(model.resolve(Need::kAll).checkpoint.empty());
}

TEST_F(HubFailure, PassingTroubleIsWaitedOut) {
  for (const int status : {429, 500, 502, 503, 504}) {
    fs::remove_all(cache(""));
    std::atomic<int> failures{2};
    server_.alter = [&](const ServerRequest&, ServerAnswer& answer) {
      if (failures-- <= 0) return;
      answer = {};
      answer.status = status;
      answer.headers = {{"Retry-After", "0"}};
    };
    EXPECT_FALSE(resolve(Need::kAll).checkpoint.empty()) << status;
  }
}

TEST_F(HubFailure, LastingTroubleEndsAfterAFewTries) {
  answer_listing(503, "");
  test::expect_error(ErrorKind::kResource, HasSubstr("answered HTTP 503"),
                     [&] { resolve(Need::kAll); });
  EXPECT_EQ(server_.requests().size(), 5u);
}

TEST_F(HubFailure, AWaitThatIsTooLongIsToldInsteadOfWaited) {
  server_.alter = [](const ServerRequest&, ServerAnswer& answer) {
    answer = {};
    answer.status = 429;
    answer.headers = {{"Retry-After", "86400"}};
  };
  EXPECT_THAT(hint_of([&] { resolve(Need::kAll); }), HasSubstr("in 86400 seconds"));
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(HubFailure, AStalledServerIsGivenUp) {
  server_.alter = [](const ServerRequest&, ServerAnswer& answer) {
    answer.pause = std::chrono::seconds(4);
  };
  HubSettings hasty = settings();
  hasty.attempts = 1;
  const HubModel model(hasty, *parse_hub_name(kTestModel), "");
  test::expect_error(ErrorKind::kResource, HasSubstr("does not answer in time"),
                     [&] { model.resolve(Need::kConfigOnly); });
}

TEST_F(HubFailure, RedirectLoopsEnd) {
  server_.alter = [](const ServerRequest& request, ServerAnswer& answer) {
    answer = {};
    answer.status = 302;
    answer.headers = {{"Location", request.path}};
  };
  test::expect_error(ErrorKind::kResource, HasSubstr("redirected more than 10 times"),
                     [&] { resolve(Need::kAll); });
  EXPECT_EQ(server_.requests().size(), 11u);
}

TEST_F(HubFailure, RedirectsToOtherProtocolsAreNotFollowed) {
  const fs::path secret = folder_.write("secret", "not yours");
  for (const std::string& location :
       {"file://" + secret.string(), std::string("ftp://127.0.0.1/x"),
        std::string("http://user@127.0.0.1/"), std::string("gopher:x")}) {
    server_.alter = [&](const ServerRequest& request, ServerAnswer& answer) {
      if (!request.is_file("model.safetensors")) return;
      answer = {};
      answer.status = 302;
      answer.headers = {{"Location", location}};
    };
    test::expect_error(ErrorKind::kCorrupt, HasSubstr("the address"), [&] { download(); });
    expect_nothing_kept();
  }
}

TEST_F(HubFailure, WrongContentIsRefusedWithBothHashes) {
  const std::string right = test::sha256_of(weights());
  std::string other = weights();
  other[90'000] ^= 1;
  server_.alter = [&](const ServerRequest& request, ServerAnswer& answer) {
    if (request.storage) answer.body = other;
  };
  test::expect_error(
      ErrorKind::kCorrupt,
      AllOf(HasSubstr("org/tiny/model.safetensors: wrong content"),
            HasSubstr("expected sha256 " + right), HasSubstr("found " + test::sha256_of(other))),
      [&] { download(); });
  expect_nothing_kept();
  EXPECT_FALSE(fs::exists(cache("blobs/" + right + ".incomplete")));
}

TEST_F(HubFailure, WrongContentOfASmallFileIsRefusedToo) {
  server_.alter = [&](const ServerRequest& request, ServerAnswer& answer) {
    if (request.is_file("config.json")) answer.body[3] ^= 1;
  };
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("expected git sha1"),
                     [&] { resolve(Need::kConfigOnly); });
}

TEST_F(HubFailure, AnAnswerOfAnotherLengthIsRefused) {
  for (const std::size_t length : {weights().size() + 1, weights().size() - 1}) {
    server_.alter = [&](const ServerRequest& request, ServerAnswer& answer) {
      if (request.storage) answer.body.resize(length);
    };
    test::expect_error(
        ErrorKind::kCorrupt,
        AllOf(HasSubstr(std::to_string(weights().size())), HasSubstr(std::to_string(length))),
        [&] { download(); });
    expect_nothing_kept();
  }
}

TEST_F(HubFailure, AFileThatKeepsBreakingOffEndsAndStaysForTheNextRun) {
  server_.alter = [](const ServerRequest& request, ServerAnswer& answer) {
    if (request.storage) answer.break_after = request.has("range") ? 0 : 50'000;
  };
  test::expect_error(ErrorKind::kResource, HasSubstr("broke off"), [&] { download(); });
  expect_nothing_kept();
  EXPECT_EQ(fs::file_size(cache("blobs/" + test::sha256_of(weights()) + ".incomplete")), 50'000u);
}

TEST_F(HubFailure, FileNamesThatLeaveTheFolderAreRefused) {
  for (const char* name : {"../evil", "a/../../evil", "/etc/evil", "a\\\\..\\\\evil", "a//b", ".",
                           "a/./b", "", "bell\\u0007", "line\\nbreak", "nul\\u0000x"}) {
    list_file(fmt::format(R"({{"rfilename": "{}", "size": 1, "blobId": "{}"}})", name,
                          std::string(40, 'a')));
    test::expect_error(ErrorKind::kCorrupt, HasSubstr("would not stay in its folder"),
                       [&] { download(); });
  }
  for (const ServerRequest& request : server_.requests()) {
    EXPECT_TRUE(request.path.starts_with("/api/")) << request.path;
  }
}

TEST_F(HubFailure, ALinkInTheSnapshotIsNotFollowedOut) {
  const fs::path outside = folder_.path() / "outside";
  fs::create_directories(outside);
  fs::create_directories(cache("snapshots/" + model().commit));
  fs::create_directory_symlink(outside, cache("snapshots/" + model().commit + "/sub"));
  model().files["sub/file.txt"] = {"x", false};
  test::expect_error(ErrorKind::kResource, HasSubstr("sub: cannot use as a folder"),
                     [&] { download(); });
  EXPECT_TRUE(fs::is_empty(outside));
}

TEST_F(HubFailure, AnEtagThatIsNoFileNameIsRefused) {
  list_file(R"({"rfilename": "config.json"})");
  const auto listing = server_.alter;
  server_.alter = [&](const ServerRequest& request, ServerAnswer& answer) {
    listing(request, answer);
    if (request.method == "HEAD") answer.headers = {{"ETag", "\"../../evil\""}};
  };
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("no usable ETag"), [&] { download(); });
}

TEST_F(HubFailure, ListingsThatAreNoneAreRefused) {
  for (const char* body : {"", "{}", "[]", "null", "<html>", R"({"sha": "x", "siblings": []})"}) {
    server_.alter = [&](const ServerRequest&, ServerAnswer& answer) { answer.body = body; };
    test::expect_error(ErrorKind::kCorrupt, HasSubstr("/api/models/org/tiny"), [&] { download(); });
  }
}

TEST_F(HubFailure, AnEndlessListingIsCutOff) {
  server_.alter = [](const ServerRequest&, ServerAnswer& answer) {
    answer.body = std::string(65 * kMiB, ' ');
  };
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("longer than 64.0 MB"), [&] { download(); });
}

TEST_F(HubFailure, AHeaderThatClaimsTooMuchIsRefused) {
  std::string file = "\xff\xff\xff\xff\xff\xff\xff\x7f";
  model().files["model.safetensors"] = {file + std::string(1000, 'x'), true};
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("org/tiny/model.safetensors"),
                     [&] { resolve(Need::kHeaders); });
}

TEST_F(HubFailure, SeveralGgufFilesAskForAChoice) {
  model().files = {{"a.gguf", {"x", true}}, {"b.gguf", {"y", true}}};
  test::expect_error(ErrorKind::kUsage, HasSubstr("2 GGUF files: a.gguf, b.gguf"),
                     [&] { resolve(Need::kAll); });
}

TEST_F(HubFailure, TwoDifferentRevisionsAreAContradiction) {
  test::expect_error(ErrorKind::kUsage, HasSubstr("two revisions"),
                     [&] { HubModel(settings(), *parse_hub_name("org/tiny@a"), "b"); });
}

}  // namespace
}  // namespace haul::core
