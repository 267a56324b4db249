// What becomes of the file in the offload folder when things go wrong: it is written by another
// process, which may be short of space or rights, or killed.

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "haul/torch/dispatch.h"
#include "tests/runtime/dispatch/layers.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class OffloadFaults : public testing::Test {
 protected:
  OffloadFaults() {
    torch::nn::Sequential model = test::layers(12);
    save_model(model, checkpoint);
    fs::create_directories(offload);
    model->to(torch::kBFloat16);
    expected = number(test::output_of(model));
  }

  static std::string number(double value) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.9g\n", value);
    return text.data();
  }

  static std::vector<std::string> command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), OFFLOAD_MODEL);
    return arguments;
  }
  test::Finished run(const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {checkpoint, offload};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return test::run_process(command(arguments));
  }
  static test::Finished sh(const std::string& script) {
    return test::run_process({"sh", "-c", script});
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> result;
    for (const auto& entry : fs::directory_iterator(offload)) result.push_back(entry.path());
    return result;
  }
  void expect_complete() const {
    const test::Finished done = run();
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(done.out, expected);
    ASSERT_EQ(files().size(), 1U) << "one file, and nothing that others left";
    EXPECT_EQ(files()[0].extension(), ".safetensors");
  }

  test::TemporaryFolder folder{fs::current_path()};  // on a disk
  const fs::path checkpoint = folder.path() / "checkpoint";
  const fs::path offload = folder.path() / "offload";
  std::string expected;
};

TEST_F(OffloadFaults, AFileThatHasNoRoomIsNamedAndNothingOfItIsLeft) {
  const test::Finished failed = run({"--file-limit", "3000000"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, AllOf(HasSubstr(offload.string() + "/haul-"), HasSubstr("too large")));
  EXPECT_THAT(files(), IsEmpty());

  // Where a small file system may be mounted, also a disk that is really full.
  const std::string mount = "mount -t tmpfs -o size=3m tmpfs '" + offload.string() + "'";
  if (sh("unshare -Urm sh -c \"" + mount + "\"").exit_code == 0) {
    const test::Finished full =
        sh("unshare -Urm sh -c \"" + mount + " && " + OFFLOAD_MODEL + " '" + checkpoint.string() +
           "' '" + offload.string() + "'; echo status \\$?; ls -A '" + offload.string() + "'\"");
    EXPECT_EQ(full.out, "status 1\n") << "and no file is left";
    EXPECT_THAT(full.err, AllOf(HasSubstr(offload.string() + ": "),
                                HasSubstr("are needed and 3.0 MB are free")));
  }
  expect_complete();
}

TEST_F(OffloadFaults, AFolderThatCannotBeUsedIsNamed) {
  torch::nn::Sequential model = test::layers(1);
  const double before = test::output_of(model);
  const fs::path file = folder.write("file", "");
  test::expect_error(ErrorKind::kResource, HasSubstr((file / "below").string()),
                     [&] { disk_offload(model, file / "below"); });
  EXPECT_EQ(test::output_of(model), before) << "the model is as it was";

  const bool root = ::geteuid() == 0;
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(offload, fs::perms(root ? 0700 : 0000));
  const test::Finished failed =
      run(root ? std::vector<std::string>{"--as-nobody"} : std::vector<std::string>{});
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_THAT(failed.err, AllOf(HasSubstr(offload.string()), HasSubstr("Permission denied")));
  fs::permissions(offload, fs::perms(0755));
  expect_complete();

  fs::permissions(checkpoint, fs::perms(root ? 0700 : 0000));
  const test::Finished unread =
      run(root ? std::vector<std::string>{"--as-nobody"} : std::vector<std::string>{});
  EXPECT_EQ(unread.exit_code, 1) << unread.err;
  EXPECT_THAT(unread.err, AllOf(HasSubstr(checkpoint.string()), HasSubstr("Permission denied")));
  fs::permissions(checkpoint, fs::perms(0755));
}

// Starts the command and kills it while its file is written.
void kill_while_it_writes(std::vector<std::string> arguments, const fs::path& offload) {
  const auto written = [&] {
    Bytes bytes = 0;
    for (const auto& entry : fs::directory_iterator(offload)) {
      std::error_code gone;
      const Bytes size = entry.file_size(gone);
      if (!gone) bytes += size;
    }
    return bytes;
  };
  const Bytes before = written();
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  while (written() == before) {
    ASSERT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "it ended before it was killed";
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(OffloadFaults, AProcessThatIsKilledLeavesNothingThatIsReadLater) {
  kill_while_it_writes(command({checkpoint, offload}), offload);
  ASSERT_EQ(files().size(), 1U);
  EXPECT_NE(files()[0].extension(), ".safetensors") << "it was killed too late for this test";
  expect_complete();
  const auto time = fs::last_write_time(files()[0]);
  expect_complete();
  EXPECT_EQ(fs::last_write_time(files()[0]), time) << "the whole one is used again";
}

TEST_F(OffloadFaults, AFileThatLostItsEndIsWrittenAnew) {
  expect_complete();
  fs::resize_file(files()[0], fs::file_size(files()[0]) - 1000);
  expect_complete();
  fs::resize_file(files()[0], 100);
  expect_complete();
}

TEST_F(OffloadFaults, AFileOfValuesInMemoryGoesWithItsModelOrWithTheNextOneAfterAKill) {
  torch::nn::Sequential model = test::layers(20);
  const std::string right = number(test::output_of(model));
  disk_offload(model, offload);
  EXPECT_EQ(files().size(), 1U);
  // Another process cleans up what no one uses, and this one is in use.
  kill_while_it_writes(command({"21", offload}), offload);
  EXPECT_EQ(files().size(), 2U);
  const test::Finished quit = test::run_process(command({"21", offload, "--quit"}));
  EXPECT_EQ(quit.exit_code, 0) << quit.err;
  EXPECT_EQ(files().size(), 2U) << "ours, and what that one left";
  EXPECT_EQ(number(test::output_of(model)), right);
  undispatch(model);
  EXPECT_EQ(files().size(), 1U);
  disk_offload(model, offload);
  EXPECT_EQ(files().size(), 1U);
  EXPECT_EQ(number(test::output_of(model)), right);
  model = nullptr;
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(OffloadFaults, AFileOfOtherValuesOfTheSameShapesIsNotTaken) {
  // Where processes may be numbered anew, each is process 1.
  const std::string alone = sh("unshare -Urpf true").exit_code == 0 ? "unshare -Urpf " : "";
  torch::nn::Sequential model = test::layers(31);
  EXPECT_EQ(sh(alone + OFFLOAD_MODEL " 30 '" + offload.string() + "' --quit").exit_code, 0);
  EXPECT_EQ(files().size(), 1U) << "it is left";
  EXPECT_EQ(sh(alone + OFFLOAD_MODEL " 31 '" + offload.string() + "'").out,
            number(test::output_of(model)));
  EXPECT_THAT(files(), IsEmpty());
}

}  // namespace
}  // namespace haul
