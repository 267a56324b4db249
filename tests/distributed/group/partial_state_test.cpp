// Real processes on this machine that find each other by the environment of a launcher.

#include "haul/torch/partial_state.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/launch/ports.h"
#include "tests/support/live_process.h"
#include "tests/support/rank_variables.h"

namespace haul {
namespace {

using test::Finished;
using ::testing::HasSubstr;

class Processes : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(HAUL_GROUP_WORKER).parent_path() /
              ("group-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // `started` of `world` processes, the first ones.
  std::vector<Finished> run(const std::string& name, int world, int started) {
    const int port = core::free_port();
    std::vector<std::unique_ptr<test::LiveProcess>> processes;
    for (int i = 0; i < started; ++i) {
      processes.push_back(std::make_unique<test::LiveProcess>(
          std::vector<std::string>{HAUL_GROUP_WORKER, name, folder_},
          test::rank_variables(i, world, port)));
    }
    std::vector<Finished> result;
    for (const auto& process : processes) result.push_back(process->wait(kLimit));
    return result;
  }
  void expect_all_right(const std::string& name, int world) {
    const std::vector<Finished> ended = run(name, world, world);
    for (std::size_t rank = 0; rank < ended.size(); ++rank) {
      EXPECT_EQ(ended[rank].exit_code, 0)
          << name << ", process " << rank << " of " << world << ": " << ended[rank].err;
    }
  }

 private:
  static constexpr std::chrono::seconds kLimit{300};

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

TEST_F(Processes, DoSharedWorkOnceAndInOrder) {
  for (const int world : {1, 2, 3, 8}) expect_all_right("work", world);
}

TEST_F(Processes, TakeTurns) {
  const std::vector<Finished> ended = run("turns", 3, 3);
  for (const Finished& one : ended) EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(ended[0].out, "said by 0\n");
  EXPECT_EQ(ended[1].out, "");
}

TEST_F(Processes, HearOfOneThatEnds) {
  const std::vector<Finished> ended = run("death", 3, 3);
  for (const Finished& one : ended) EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(ended[0].err, HasSubstr("process 0 of 3: waiting for everyone failed"));
}

TEST_F(Processes, DoNotWaitForeverForOneThatNeverCame) {
  const std::vector<Finished> ended = run("missing", 2, 1);
  EXPECT_EQ(ended[0].exit_code, 3);
  EXPECT_THAT(ended[0].err, HasSubstr("process 0 of 2: connecting to the others failed"));
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
