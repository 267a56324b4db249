// `haul test`, as a person runs it.

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using ::testing::HasSubstr;

std::pair<int, std::string> run(const std::string& command) {
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), got);
  }
  return {WEXITSTATUS(::pclose(pipe)), output};
}

TEST(SelfTest, StartsItsProcessesAndSaysThatAllIsWell) {
  const auto [code, output] = run(HAUL_COMMAND " test --num_processes 3 --cpu");
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("3 processes, 3 on this machine, gloo on cpu\nall is well\n"));
}

TEST(SelfTest, WorksAlone) {
  const auto [code, output] = run(HAUL_COMMAND " test --num-processes 1 --cpu");
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("1 processes, 1 on this machine, alone on cpu\nall is well\n"));
}

TEST(SelfTest, FailsWithoutAConfigThatCanBeRead) {
  const auto [code, output] = run(HAUL_COMMAND " test --config_file /no/such/file.yaml");
  EXPECT_EQ(code, 1) << output;
  EXPECT_THAT(output, HasSubstr("/no/such/file.yaml"));
}

}  // namespace
