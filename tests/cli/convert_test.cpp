#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t kData = 64ULL << 20;

// A safetensors file of two U8 tensors whose bytes are zero but for one in the middle of each;
// sparse, so it is made at once.
fs::path write_large_input(const test::TemporaryFolder& folder) {
  const std::string half = std::to_string(kData / 2);
  const std::string whole = std::to_string(kData);
  std::string header = R"({"a":{"dtype":"U8","shape":[)" + half + R"(],"data_offsets":[0,)" + half +
                       R"(]},"b":{"dtype":"U8","shape":[)" + half + R"(],"data_offsets":[)" + half +
                       "," + whole + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string prefix(8, '\0');
  prefix[0] = static_cast<char>(header.size());
  const fs::path path = folder.write("in/model.safetensors", prefix + header);
  const std::uint64_t begin = fs::file_size(path);
  fs::resize_file(path, begin + kData);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const std::uint64_t at : {kData / 4, 3 * kData / 4}) {
    file.seekp(static_cast<std::streamoff>(begin + at));
    file.put('x');
  }
  return path;
}

fs::path unfinished_folder(const fs::path& parent) {
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (entry.path().filename().string().starts_with(".out.haul-unfinished-")) return entry.path();
  }
  return {};
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t total = 0;
  std::error_code ignored;
  if (folder.empty()) return 0;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    total += entry.file_size(ignored);
  }
  return total;
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ConvertCommand, KilledInTheMiddleLeavesNothingThatLooksWholeAndTheNextRunCompletes) {
  const test::TemporaryFolder folder;
  const fs::path input = write_large_input(folder);
  const fs::path out = folder.path() / "out";

  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(HAUL_COMMAND, HAUL_COMMAND, "convert", input.c_str(), out.c_str(), nullptr);
    ::_exit(127);
  }
  while (bytes_in(unfinished_folder(folder.path())) < kData / 16) {
    ASSERT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "the convert ended before it was killed";
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the convert ended before it was killed";

  EXPECT_FALSE(fs::exists(out));
  const fs::path left = unfinished_folder(folder.path());
  ASSERT_FALSE(left.empty());
  EXPECT_FALSE(fs::exists(left / "model.safetensors"));

  const auto again = test::run_haul({"convert", input, out});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(unfinished_folder(folder.path()).empty());
  const std::string written = content(out / "model.safetensors");
  const std::string original = content(input);
  EXPECT_TRUE(written.substr(written.size() - kData) == original.substr(original.size() - kData));
}

TEST(ConvertCommand, SaysWhatItWroteAsTextAndAsJson) {
  const test::TemporaryFolder folder;
  const fs::path input = folder.write(
      "x.safetensors", std::string("\x40\0\0\0\0\0\0\0", 8) +
                           R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}          )" +
                           "abcd");
  const auto text = test::run_haul({"convert", input, folder.path() / "one"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("1 tensors, 4 bytes, 1 files"));
  const auto json = test::run_haul({"convert", input, folder.path() / "two", "--dtype", "fp16",
                                    "--max_shard_size=1KB", "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(json.out, StartsWith("{\n  \"input\": "));
  EXPECT_THAT(json.out, HasSubstr("\"bytes\": 2"));
}

TEST(ConvertCommand, RefusesUnknownDtypesAndSizesAsUsage) {
  const auto dtype = test::run_haul({"convert", "x", "y", "--dtype", "q4"});
  EXPECT_EQ(dtype.exit_code, 2);
  EXPECT_THAT(dtype.err, HasSubstr("'q4' is not a dtype"));
  EXPECT_EQ(test::run_haul({"convert", "x", "y", "--max-shard-size", "many"}).exit_code, 2);
}

}  // namespace
}  // namespace haul::cli
