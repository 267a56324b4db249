// Real processes on this machine that find each other by the environment of a launcher.

#include "haul/torch/partial_state.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

extern char** environ;

namespace haul {
namespace {

using ::testing::HasSubstr;

int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(listener);
  return ntohs(address.sin_port);
}

struct Ended {
  int code = 0;
  std::string output;  // stdout and stderr
};

class Processes : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(HAUL_GROUP_WORKER).parent_path() /
              ("group-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // `started` of `world` processes, the first ones.
  std::vector<Ended> run(const std::string& name, int world, int started) {
    const int port = free_port();
    std::vector<pid_t> processes(static_cast<std::size_t>(started));
    for (int rank = 0; rank < started; ++rank) {
      processes[static_cast<std::size_t>(rank)] = start(name, world, rank, port);
    }
    std::vector<Ended> result;
    for (int rank = 0; rank < started; ++rank) {
      int status = 0;
      EXPECT_EQ(waitpid(processes[static_cast<std::size_t>(rank)], &status, 0),
                processes[static_cast<std::size_t>(rank)]);
      std::ostringstream text;
      text << std::ifstream(output_of(rank)).rdbuf();
      result.push_back(
          {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text.str()});
    }
    return result;
  }
  void expect_all_right(const std::string& name, int world) {
    const std::vector<Ended> ended = run(name, world, world);
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(ended[static_cast<std::size_t>(rank)].code, 0)
          << name << ", process " << rank << " of " << world << ": "
          << ended[static_cast<std::size_t>(rank)].output;
    }
  }

 private:
  std::string output_of(int rank) const { return folder_ / ("output-" + std::to_string(rank)); }

  pid_t start(const std::string& name, int world, int rank, int port) {
    std::vector<std::string> variables{"RANK=" + std::to_string(rank),
                                       "LOCAL_RANK=" + std::to_string(rank),
                                       "WORLD_SIZE=" + std::to_string(world),
                                       "LOCAL_WORLD_SIZE=" + std::to_string(world),
                                       "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=" + std::to_string(port),
                                       "OMP_NUM_THREADS=1"};
    std::vector<char*> environment;
    environment.reserve(variables.size());
    for (std::string& variable : variables) environment.push_back(variable.data());
    for (char** variable = environ; *variable != nullptr; ++variable)
      environment.push_back(*variable);
    environment.push_back(nullptr);
    std::string worker = HAUL_GROUP_WORKER;
    std::string verb = name;
    std::string folder = folder_;
    char* arguments[] = {worker.data(), verb.data(), folder.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output_of(rank).c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, worker.c_str(), &actions, nullptr, arguments, environment.data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  std::filesystem::path folder_;
};

class Worlds : public Processes, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Worlds, ::testing::Range(1, 9));

TEST_P(Worlds, SplitsComeBackInOrderForEveryLength) {
  expect_all_right("splits", GetParam());
}

TEST_F(Processes, CollectivesGiveWhatTheySay) {
  for (const int world : {1, 2, 3, 4, 8}) expect_all_right("collectives", world);
}

TEST_F(Processes, TakeTurns) {
  const std::vector<Ended> ended = run("turns", 3, 3);
  for (const Ended& one : ended) EXPECT_EQ(one.code, 0) << one.output;
  EXPECT_EQ(ended[0].output, "said by 0\n");
  EXPECT_EQ(ended[1].output, "");
}

TEST_F(Processes, HearOfOneThatEnds) {
  const std::vector<Ended> ended = run("death", 3, 3);
  for (const Ended& one : ended) EXPECT_EQ(one.code, 0) << one.output;
  EXPECT_THAT(ended[0].output, HasSubstr("process 0 of 3: waiting for everyone failed"));
}

TEST_F(Processes, DoNotWaitForeverForOneThatNeverCame) {
  const std::vector<Ended> ended = run("missing", 2, 1);
  EXPECT_EQ(ended[0].code, 3);
  EXPECT_THAT(ended[0].output, HasSubstr("process 0 of 2: connecting to the others failed"));
}

TEST_F(Processes, MayEndTheirGroupAndMakeAnother) {
  expect_all_right("again", 2);
}

TEST(PartialStateAlone, IsAGroupOfOne) {
  const PartialState state;
  EXPECT_EQ(state.num_processes(), 1);
  EXPECT_TRUE(state.is_main_process() && state.is_last_process() && !state.use_distributed());
  const std::vector<std::string> prompts{"a", "b"};
  const auto part = state.split_between_processes(prompts, true);
  EXPECT_EQ(part.items, prompts);
  EXPECT_EQ(state.gather_split(part.items, part.share), prompts);
  state.wait_for_everyone();
}

}  // namespace
}  // namespace haul
