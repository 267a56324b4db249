#include <cstdlib>

#include <gtest/gtest.h>

#include "core/hub/hub_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/hub_server.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

class HubTls : public testing::Test {
 protected:
  void SetUp() override {
    const std::string command =
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
        "-addext subjectAltName=IP:127.0.0.1 -keyout " +
        key() + " -out " + certificate() + " 2> /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0);
    server_ = std::make_unique<test::HubServer>(certificate(), key());
    server_->models["tiny"].commit = std::string(40, 'c');
    server_->models["tiny"].files["config.json"] = {"{}", false};
  }
  void TearDown() override { ::unsetenv("SSL_CERT_FILE"); }

  std::string certificate() const { return folder_.path() / "certificate.pem"; }
  std::string key() const { return folder_.path() / "key.pem"; }

  ModelFiles resolve() const {
    HubSettings settings;
    settings.endpoint = parse_url(server_->endpoint());
    settings.endpoint.target.clear();
    settings.cache = folder_.path() / "hub";
    return HubModel(settings, {"tiny", ""}, "").resolve(Need::kConfigOnly);
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<test::HubServer> server_;
};

TEST_F(HubTls, ACertificateOfNobodyIsRefused) {
  test::expect_error(ErrorKind::kResource, HasSubstr("is not valid"), [&] { resolve(); });
  EXPECT_TRUE(server_->requests().empty());
}

TEST_F(HubTls, OnesOwnAuthorityIsBelieved) {
  ::setenv("SSL_CERT_FILE", certificate().c_str(), 1);
  EXPECT_FALSE(resolve().config.empty());
}

TEST_F(HubTls, ARedirectFromHttpsToHttpIsNotFollowed) {
  ::setenv("SSL_CERT_FILE", certificate().c_str(), 1);
  const test::HubServer plain;
  server_->alter = [&](const test::ServerRequest& request, test::ServerAnswer& answer) {
    answer = {};
    answer.status = 302;
    answer.headers = {{"Location", plain.endpoint() + request.path}};
  };
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("from https to http"), [&] { resolve(); });
  EXPECT_TRUE(plain.requests().empty());
}

}  // namespace
}  // namespace haul::core
