#include "cli/idle_threads.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

constexpr const char* kLooks = "GOMP_SPINCOUNT";
constexpr const char* kPolicy = "OMP_WAIT_POLICY";

class IdleThreads : public testing::Test {
 protected:
  IdleThreads() {
    ::unsetenv(kLooks);
    ::unsetenv(kPolicy);
  }
  ~IdleThreads() override {
    ::unsetenv(kLooks);
    ::unsetenv(kPolicy);
  }
  std::string looks() const {
    let_idle_threads_sleep(devices.path());
    const char* const found = std::getenv(kLooks);
    return found == nullptr ? "as usual" : found;
  }

  test::TemporaryFolder devices;
};

TEST_F(IdleThreads, SleepSoonerBesideAGpu) {
  EXPECT_EQ(looks(), "as usual");
  devices.write("nvidiactl", "");
  EXPECT_EQ(looks(), kIdleThreadsLookLong ? kFewLooks : "as usual");
}

TEST_F(IdleThreads, SleepWhenTheUserSays) {
  devices.write("dxg", "");
  ::setenv(kPolicy, "active", 1);
  EXPECT_EQ(looks(), "as usual");
  ::unsetenv(kPolicy);
  ::setenv(kLooks, "77", 1);
  EXPECT_EQ(looks(), "77");
}

}  // namespace
}  // namespace haul::cli
