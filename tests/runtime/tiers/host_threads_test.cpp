#include "runtime/tiers/host_threads.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

namespace haul::runtime {
namespace {

class Threads : public testing::Test {
 protected:
  // As a GPU's stream does.
  void begin(std::uint32_t number) {
    std::atomic_ref(begun_).store(number, std::memory_order_release);
  }
  std::uint32_t done() { return std::atomic_ref(done_).load(std::memory_order_acquire); }
  void wait_for(std::uint32_t number) {
    while (done() != number) std::this_thread::yield();
  }

  std::uint32_t begun_ = 0;
  std::uint32_t done_ = 0;
};

TEST_F(Threads, DoEveryPieceOnceWhenItsTimeHasCome) {
  constexpr std::size_t kPieces = 1000;
  for (const int count : {1, 2, 7}) {
    begun_ = done_ = 0;
    std::vector<std::atomic<int>> calls(kPieces);
    HostThreads threads(count, &begun_, &done_);
    // Some are known long before, as those of a whole pass are.
    for (std::uint32_t job = 1; job <= 50; ++job) {
      threads.add(job, kPieces, [&](std::size_t piece) { ++calls[piece]; });
    }
    for (std::uint32_t job = 1; job <= 50; ++job) {
      for (const std::atomic<int>& each : calls) ASSERT_EQ(each, static_cast<int>(job) - 1);
      begin(job);
      wait_for(job);
    }
    for (const std::atomic<int>& each : calls) ASSERT_EQ(each, 50);
  }
}

TEST_F(Threads, SeeWhatWasWrittenBeforeTheBeginningAndShowWhatTheyWrote) {
  HostThreads threads(3, &begun_, &done_);
  std::vector<int> in(64);
  std::vector<int> out(64);
  for (std::uint32_t job = 1; job <= 300; ++job) {
    threads.add(job, in.size(), [&](std::size_t piece) { out[piece] = in[piece] + 1; });
    for (int& each : in) each = static_cast<int>(job);
    begin(job);
    wait_for(job);
    for (const int each : out) ASSERT_EQ(each, static_cast<int>(job) + 1);
  }
}

TEST_F(Threads, WakeUpAfterALongTime) {
  HostThreads threads(2, &begun_, &done_);
  std::atomic<int> calls = 0;
  for (std::uint32_t job = 1; job <= 2; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    threads.add(job, 1, [&](std::size_t) { ++calls; });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    begin(job);
    wait_for(job);
  }
  EXPECT_EQ(calls, 2);
}

TEST_F(Threads, CountOnFromTheLargestNumber) {
  begun_ = done_ = 0xffff'fffe;
  HostThreads threads(2, &begun_, &done_);
  std::atomic<int> calls = 0;
  for (const std::uint32_t job : {0xffff'ffffU, 0U, 1U}) {
    threads.add(job, 3, [&](std::size_t) { ++calls; });
    begin(job);
    wait_for(job);
  }
  EXPECT_EQ(calls, 9);
}

TEST_F(Threads, EndWithoutTheWorkWhoseTimeHasNotCome) {
  std::atomic<int> calls = 0;
  {
    HostThreads threads(3, &begun_, &done_);
    threads.add(1, 5, [&](std::size_t) { ++calls; });
  }
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(done(), 0U);
}

}  // namespace
}  // namespace haul::runtime
