// What only whole processes can show: two at once, one killed in the middle, a full disk.

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "tests/core/hub/hub_fixture.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;
using test::ServerAnswer;
using test::ServerRequest;
using testing::AllOf;
using testing::HasSubstr;

class HubProcess : public HubTest {
 protected:
  // Starts `haul download org/tiny` with its output in files `label`.out and `label`.err.
  pid_t start(const std::string& label, std::vector<std::string> flags = {},
              rlim_t largest_file = RLIM_INFINITY) {
    const std::string out = folder_.path() / (label + ".out");
    const std::string err = folder_.path() / (label + ".err");
    std::vector<std::string> words{HAUL_COMMAND, "download", kTestModel};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string endpoint = server_.endpoint();
    const std::string home = folder_.path();
    const std::string cache_folder = cache_root_;
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("HF_ENDPOINT", endpoint.c_str(), 1);
      ::setenv("HF_HOME", home.c_str(), 1);
      if (!cache_folder.empty()) ::setenv("HF_HUB_CACHE", cache_folder.c_str(), 1);
      if (::freopen(out.c_str(), "w", stdout) == nullptr) ::_exit(99);
      if (::freopen(err.c_str(), "w", stderr) == nullptr) ::_exit(99);
      const rlimit limit{largest_file, largest_file};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN);
      ::execv(HAUL_COMMAND, arguments.data());
      ::_exit(98);
    }
    return child;
  }

  int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string output(const std::string& file) { return read_file(folder_.path() / file, kMiB); }

  fs::path partial() { return cache("blobs/" + test::sha256_of(weights()) + ".incomplete"); }

  std::string cache_root_;
};

TEST_F(HubProcess, TheVerbPrintsTheFolderAndTellsWhatItSkipped) {
  model().files["pytorch_model.bin"] = {"pickle", true};
  ASSERT_EQ(wait_for(start("plain")), 0) << output("plain.err");
  EXPECT_EQ(output("plain.out"), cache("snapshots/" + model().commit).string() + "\n");
  EXPECT_THAT(output("plain.err"), AllOf(HasSubstr("skipped"), HasSubstr("pytorch_model.bin")));
  ASSERT_EQ(wait_for(start("json", {"--json", "--include", "*.json", "--exclude", "tok*"})), 0);
  const Json document = parse_json(output("json.out"), "output");
  EXPECT_EQ(document["commit"], model().commit);
  ASSERT_EQ(document["files"].size(), 1u);
  EXPECT_EQ(document["files"][0]["name"], "config.json");
  EXPECT_EQ(document["files"][0]["fetched"], false);
}

TEST_F(HubProcess, AFailureIsOneLineAndAHint) {
  server_.models.clear();
  EXPECT_EQ(wait_for(start("a")), 1);
  EXPECT_THAT(output("a.err"), AllOf(HasSubstr("haul: error: org/tiny: no such model"),
                                     HasSubstr("\n  check the name")));
}

TEST_F(HubProcess, TwoProcessesFetchEachFileOnce) {
  server_.alter = [](const ServerRequest& request, ServerAnswer& answer) {
    if (request.storage) answer.pause = std::chrono::milliseconds(10);
  };
  const pid_t first = start("first");
  const pid_t second = start("second");
  EXPECT_EQ(wait_for(first), 0) << output("first.err");
  EXPECT_EQ(wait_for(second), 0) << output("second.err");
  EXPECT_EQ(server_.fetches("model.safetensors"), 1u);
  EXPECT_EQ(server_.fetches("config.json"), 1u);
  EXPECT_EQ(read_file(cache("snapshots/" + model().commit + "/model.safetensors"), kGiB),
            weights());
}

TEST_F(HubProcess, AKilledDownloadIsCompletedByTheNext) {
  std::atomic<bool> slow{true};
  server_.alter = [&](const ServerRequest& request, ServerAnswer& answer) {
    if (request.storage && slow) answer.pause = std::chrono::milliseconds(20);
  };
  for (int round = 0; round < 3; ++round) {
    const Bytes before = fs::exists(partial()) ? fs::file_size(partial()) : 0;
    const pid_t child = start("killed");
    while (!fs::exists(partial()) || fs::file_size(partial()) < before + 20'000) {
      ASSERT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << output("killed.err");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ::kill(child, SIGKILL);
    EXPECT_EQ(wait_for(child), 128 + SIGKILL);
    // Nothing half-done can be read under its name.
    EXPECT_FALSE(fs::exists(cache("snapshots/" + model().commit + "/model.safetensors")));
    HubSettings offline = settings();
    offline.offline = true;
    const HubModel here(offline, *parse_hub_name(kTestModel), "");
    test::expect_error(ErrorKind::kResource, HasSubstr("not in the cache"),
                       [&] { here.resolve(Need::kAll); });
  }
  slow = false;
  const Bytes left = fs::file_size(partial());
  EXPECT_GE(left, 60'000u);
  ASSERT_EQ(wait_for(start("next")), 0) << output("next.err");
  EXPECT_EQ(read_file(cache("snapshots/" + model().commit + "/model.safetensors"), kGiB),
            weights());
  EXPECT_FALSE(fs::exists(partial()));
  const ServerRequest last = server_.requests().back();
  EXPECT_TRUE(last.storage);
  EXPECT_EQ(last.headers.at("range"), "bytes=" + std::to_string(left) + "-");
}

// A disk of its own where mounting is allowed. Else a limit on the size of files stands in for it:
// writes fail in the same place, for another reason.
class FullDisk : public HubProcess {
 protected:
  void make_disk(const char* size) {
    fs::create_directories(disk_);
    mounted_ = ::mount("tmpfs", disk_.c_str(), "tmpfs", 0, size) == 0;
    cache_root_ = disk_;
  }
  ~FullDisk() override {
    if (mounted_) ::umount2(disk_.c_str(), MNT_DETACH);
  }

  rlim_t limit() const { return mounted_ ? RLIM_INFINITY : 96 * 1024; }
  fs::path file() {
    return disk_ / "models--org--tiny/snapshots" / model().commit / "model.safetensors";
  }

  const fs::path disk_ = folder_.path() / "disk";
  bool mounted_ = false;
};

TEST_F(FullDisk, IsToldBeforeAnythingIsFetched) {
  make_disk("size=96k");
  EXPECT_EQ(wait_for(start("full", {}, limit())), 1);
  EXPECT_FALSE(fs::exists(file()));
  if (!mounted_) {
    EXPECT_THAT(output("full.err"), HasSubstr("File too large"));
    return;
  }
  EXPECT_THAT(output("full.err"), AllOf(HasSubstr("the disk is full"), HasSubstr("are needed"),
                                        HasSubstr("HF_HUB_CACHE")));
  EXPECT_EQ(server_.fetches("model.safetensors"), 0u);
}

TEST_F(FullDisk, ThatFillsUpOnTheWayIsToldAndTheNextRunGoesOn) {
  make_disk("size=300k");
  std::atomic<bool> filled{false};
  server_.alter = [&](const ServerRequest& request, ServerAnswer& answer) {
    if (!request.storage || filled.exchange(true)) return;
    std::ofstream(disk_ / "other") << std::string(200'000, 'x');
    answer.pause = std::chrono::milliseconds(1);
  };
  EXPECT_EQ(wait_for(start("filling", {}, limit())), 1);
  EXPECT_THAT(output("filling.err"), HasSubstr(mounted_ ? "the disk is full" : "File too large"));
  EXPECT_FALSE(fs::exists(file()));
  fs::remove(disk_ / "other");
  EXPECT_EQ(wait_for(start("again")), 0) << output("again.err");
  EXPECT_TRUE(read_file(file(), kGiB) == weights());
}

}  // namespace
}  // namespace haul::core
