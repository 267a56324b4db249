#include "runtime/stream/staging.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Bytes kPiece = 8192;

// A weight that was asked for.
struct Coming {
  std::mutex mutex;
  std::condition_variable changed;
  std::string bytes;
  std::vector<std::byte*> kept;
  Bytes left = 0;  // pieces
  std::exception_ptr error;

  bool ended() {
    const std::lock_guard lock(mutex);
    return left == 0;
  }
  void wait_for_end() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left == 0; });
  }
  const std::string& wait() {
    wait_for_end();
    if (error) std::rethrow_exception(error);
    return bytes;
  }
};

// Stops whoever passes while it is closed.
class Gate {
 public:
  void pass() {
    ++waiting_;
    while (closed_) std::this_thread::yield();
    --waiting_;
  }
  void close() { closed_ = true; }
  void open() { closed_ = false; }
  void wait_for_someone() const {
    while (waiting_ == 0) std::this_thread::yield();
  }

 private:
  std::atomic<bool> closed_ = false;
  std::atomic<int> waiting_ = 0;
};

// Weights of any size, one behind the other in a file.
class StagingTest : public testing::Test {
 protected:
  void make(const std::vector<Bytes>& sizes, Bytes pieces,
            const DiskReader::Options& options = {}) {
    std::mt19937 random(1);
    homes.clear();
    text.clear();
    for (const Bytes size : sizes) {
      homes.push_back({nullptr, 0, text.size(), size});
      for (Bytes i = 0; i < size; ++i) text += static_cast<char>(random());
    }
    disk = std::make_shared<DiskReader>(options);
    EXPECT_EQ(disk->open(folder.write("weights", text)), 0);
    staging = std::make_unique<Staging>(disk, kPiece, pieces, [this](Bytes size) {
      size = std::min(size, most_memory);
      return std::make_unique<Slab>(c10::Device(c10::kCPU), size,
                                    ledger.reserve(Tag::kStaging, size));
    });
  }

  std::string_view expected(int i) const {
    return std::string_view(text).substr(homes[i].offset, homes[i].size);
  }

  // Takes the bytes out at once and gives the pieces back, unless they are to be kept.
  std::shared_ptr<Coming> ask(int i, bool keep = false) {
    auto coming = std::make_shared<Coming>();
    coming->bytes.resize(homes[i].size);
    coming->left = staging->pieces_of(homes[i].size);
    staging->read(homes[i], [this, coming, keep](const Staging::Piece& piece,
                                                 const std::exception_ptr& error) {
      if (!error) std::memcpy(coming->bytes.data() + piece.offset, piece.data, piece.size);
      if (!keep) staging->give_back(piece.data);
      const std::lock_guard lock(coming->mutex);
      if (keep) coming->kept.push_back(piece.data);
      if (error) coming->error = error;
      --coming->left;
      coming->changed.notify_all();
    });
    return coming;
  }

  void use(int i) { EXPECT_EQ(ask(i)->wait(), expected(i)) << i; }
  void expect(const std::vector<int>& weights) {
    std::vector<Home> list;
    list.reserve(weights.size());
    for (const int i : weights) list.push_back(homes[i]);
    staging->expect(list);
  }

  Bytes read() const { return disk->counts().bytes_direct + disk->counts().bytes_cached; }
  // The last of its bytes are counted a little before the read has ended.
  void wait_until_read(Bytes bytes) const {
    while (read() < bytes) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  test::TemporaryFolder folder;
  Ledger ledger{"RAM", std::nullopt};
  Bytes most_memory = kGiB;
  std::string text;
  std::vector<Home> homes;
  std::shared_ptr<DiskReader> disk;
  std::unique_ptr<Staging> staging;
};

TEST_F(StagingTest, BringsWeightsOfAnySizeThroughLittleMemory) {
  for (const Bytes pieces : {1, 2, 3, 16}) {
    make({1, 0, 100'001, kPiece, 7, 2 * kPiece, 3 * kPiece + 1, 4095, 0, 50'000}, pieces);
    EXPECT_EQ(ledger.used(), 0U) << "no memory before the first read";
    for (int i = 0; i < 10; ++i) use(i);
    EXPECT_EQ(ledger.used(), pieces * Staging::slot_size(kPiece));
    std::vector<std::shared_ptr<Coming>> all(10);
    for (int i = 0; i < 10; ++i) all[i] = ask(i);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(all[i]->wait(), expected(i)) << i;
    for (int i = 0; i < 10; ++i) {
      expect({(i + 1) % 10, (i + 2) % 10, (i + 3) % 10});
      use(i);
    }
    staging.reset();
    EXPECT_EQ(ledger.used(), 0U);
  }
}

TEST_F(StagingTest, DoesWithLessMemoryThanItAsksFor) {
  for (const Bytes pieces : {1, 3}) {
    most_memory = pieces * Staging::slot_size(kPiece) + 1;
    make({100'001, kPiece, 0, 3 * kPiece + 1, 7}, 16);
    std::vector<std::shared_ptr<Coming>> all(5);
    for (int i = 0; i < 5; ++i) all[i] = ask(i);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(all[i]->wait(), expected(i)) << i;
    EXPECT_EQ(staging->reach(), pieces == 3 ? 1U : 0U);
    expect({1, 3});
    for (const int i : {0, 1, 3}) use(i);
    staging.reset();
  }
}

TEST_F(StagingTest, ReadsOnceWhatIsExpectedAndThenAskedFor) {
  make({100, 2 * kPiece, 0, 3 * kPiece + 5, 20'000}, 10);
  EXPECT_EQ(staging->reach(), 0U) << "nothing is expected before there is memory";
  expect({1});
  use(0);
  EXPECT_EQ(staging->reach(), 8U);
  expect({1, 2, 3});
  wait_until_read(100 + 5 * kPiece + 5);
  for (const int i : {1, 2, 3}) {
    const auto coming = ask(i);
    EXPECT_TRUE(coming->ended()) << "it is there at once";
    EXPECT_EQ(coming->wait(), expected(i));
  }
  EXPECT_EQ(read(), 100 + 5 * kPiece + 5);
}

TEST_F(StagingTest, ReadsOnceWhatIsAskedForWhileItIsOnItsWay) {
  Gate gate;
  make({1, 4 * kPiece, 4 * kPiece}, 6,
       {.threads = 1, .fault = [&](int, Bytes, Bytes) -> std::optional<int> {
          gate.pass();
          return std::nullopt;
        }});
  use(0);
  gate.close();
  expect({1, 1, 2});
  gate.wait_for_someone();
  expect({1, 2});
  const auto one = ask(1);
  gate.open();
  EXPECT_EQ(one->wait(), expected(1));
  wait_until_read(1 + 8 * kPiece);
  EXPECT_EQ(ask(2)->wait(), expected(2));
  EXPECT_EQ(read(), 1 + 8 * kPiece);
}

// Two pieces stay free for what is asked for out of order, and it comes first.
TEST_F(StagingTest, ReadsWhatIsAskedForBeforeWhatIsExpected) {
  Gate gate;
  std::vector<Bytes> begun;
  make({1, 2 * kPiece, 2 * kPiece, 2 * kPiece}, 5,
       {.way = DiskReader::Way::kPlain,
        .threads = 1,
        .fault = [&](int, Bytes offset, Bytes) -> std::optional<int> {
          gate.pass();
          begun.push_back(offset);
          return std::nullopt;
        }});
  use(0);
  begun.clear();
  gate.close();
  expect({2, 1, 3});
  gate.wait_for_someone();
  const auto three = ask(3, true);
  gate.open();
  EXPECT_EQ(three->wait(), expected(3));
  const auto at = [&](int weight, Bytes piece) { return homes[weight].offset + piece * kPiece; };
  staging.reset();
  disk.reset();
  EXPECT_THAT(begun, ElementsAre(at(2, 0), at(2, 1), at(1, 0), at(3, 0), at(3, 1)));
}

TEST_F(StagingTest, WhatIsExpectedGivesWay) {
  make({1, 3 * kPiece, kPiece, 6 * kPiece}, 6);
  use(0);
  expect({1, 2});
  wait_until_read(1 + 4 * kPiece);
  const auto three = ask(3, true);
  EXPECT_EQ(three->wait(), expected(3)) << "with all of the memory";
  const auto one = ask(1);
  const auto two = ask(2);
  for (std::byte* const data : three->kept) staging->give_back(data);
  EXPECT_EQ(one->wait(), expected(1));
  EXPECT_EQ(two->wait(), expected(2));
}

// The one that will be asked for last goes first.
TEST_F(StagingTest, KeepsOfTheExpectedWhatItCan) {
  make({1, 2 * kPiece, 2 * kPiece, 4 * kPiece}, 6);
  use(0);
  expect({1, 2});
  wait_until_read(1 + 4 * kPiece);
  const auto three = ask(3, true);
  EXPECT_EQ(three->wait(), expected(3));
  EXPECT_TRUE(ask(1)->ended());
  for (std::byte* const data : three->kept) staging->give_back(data);
  use(2);
  EXPECT_EQ(read(), 1 + 10 * kPiece);
}

TEST_F(StagingTest, ForgetsWhatIsNotNamedAgain) {
  make({1, 2 * kPiece, 2 * kPiece, kPiece}, 7);
  use(0);
  expect({1, 2});
  wait_until_read(1 + 4 * kPiece);
  expect({3, 2});
  wait_until_read(1 + 5 * kPiece);
  EXPECT_TRUE(ask(3)->ended());
  EXPECT_TRUE(ask(2)->ended());
  use(1);
  EXPECT_EQ(read(), 1 + 7 * kPiece);
}

TEST_F(StagingTest, ForgetsWhatIsOnItsWay) {
  Gate gate;
  make({1, 3 * kPiece, 3 * kPiece}, 5,
       {.threads = 1, .fault = [&](int, Bytes, Bytes) -> std::optional<int> {
          gate.pass();
          return std::nullopt;
        }});
  use(0);
  for (int round = 0; round < 20; ++round) {
    gate.close();
    expect({1, 2});
    gate.wait_for_someone();
    expect({});
    const auto one = ask(1);
    const auto two = ask(2);
    gate.open();
    EXPECT_EQ(one->wait(), expected(1));
    EXPECT_EQ(two->wait(), expected(2));
  }
}

TEST_F(StagingTest, AFailedReadAheadIsReadAgain) {
  std::atomic<bool> broken = false;
  std::atomic<int> failed = 0;
  make({1, 4 * kPiece}, 10, {.fault = [&](int, Bytes, Bytes) -> std::optional<int> {
         if (!broken) return std::nullopt;
         ++failed;
         return EIO;
       }});
  use(0);
  broken = true;
  expect({1});
  while (failed == 0) std::this_thread::yield();
  broken = false;
  use(1);
}

TEST_F(StagingTest, AReadThatBeganBeforeItWasAskedForAndFailedIsTriedAgain) {
  Gate gate;
  std::atomic<int> to_fail = 0;
  make({1, 4 * kPiece}, 10, {.threads = 1, .fault = [&](int, Bytes, Bytes) -> std::optional<int> {
                               gate.pass();
                               return to_fail-- > 0 ? std::optional(EIO) : std::nullopt;
                             }});
  use(0);
  gate.close();
  to_fail = 4;
  expect({1});
  gate.wait_for_someone();
  const auto one = ask(1);
  gate.open();
  EXPECT_EQ(one->wait(), expected(1));
  EXPECT_LT(to_fail, 0);
}

TEST_F(StagingTest, TellsAFailedReadAndTriesAgain) {
  std::atomic<bool> broken = true;
  make({50'000, 20}, 3, {.fault = [&](int, Bytes, Bytes) -> std::optional<int> {
         return broken ? std::optional(EIO) : std::nullopt;
       }});
  for (int i = 0; i < 5; ++i) {
    test::expect_error(ErrorKind::kResource, HasSubstr("weights"), [&] { ask(0)->wait(); });
  }
  broken = false;
  use(0);
  use(1);
  homes[1].offset += 1;
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("too few"), [&] { ask(1)->wait(); });
  homes[1].file = 7;
  test::expect_error(ErrorKind::kUsage, HasSubstr("7"), [&] { ask(1)->wait(); });
  expect({1, 0});
  use(0);
}

TEST_F(StagingTest, SaysThatThereIsNoMemory) {
  ledger = Ledger("RAM", Staging::slot_size(kPiece));
  make({10}, 2);
  test::expect_error(ErrorKind::kResource, HasSubstr("RAM"), [&] { ask(0); });
  expect({0});
}

TEST_F(StagingTest, EndsWhileReadsAreUnderWay) {
  for (int round = 0; round < 100; ++round) {
    make({100'000, 50'000, 50'000, 50'000}, 12);
    const auto first = ask(0);
    expect({1, 2, 3});
    if (round % 2 == 0) first->wait();
    const auto second = round % 3 == 0 ? ask(1) : nullptr;
    staging->finish();
    EXPECT_TRUE(first->ended()) << "what was asked for has come";
    if (second) {
      EXPECT_EQ(second->wait(), expected(1));
    }
    staging.reset();
    EXPECT_EQ(ledger.used(), 0U);
  }
}

// Threads that ask in any order, expect rightly and wrongly, give pieces back late, and reads that
// fail now and then: every byte is right, and nothing waits for ever.
TEST_F(StagingTest, SurvivesAnyOrderAndFaultsUnderManyThreads) {
  std::mutex mutex;
  std::mt19937 dice(3);
  const auto fault = [&](int, Bytes, Bytes) -> std::optional<int> {
    const std::lock_guard lock(mutex);
    const auto roll = dice() % 200;
    if (roll < 3) return EIO;
    if (roll < 10) return 0;  // a short read
    return std::nullopt;
  };
  for (const Bytes pieces : {1, 3, 7, 20}) {
    make({0, 1, 30'000, 5, 8192, 70'001, 16'384, 16'385, 4095, 4097, 40'000, 12}, pieces,
         {.fault = fault});
    std::atomic<int> wrong = 0;
    std::atomic<int> failed = 0;
    std::atomic<int> right = 0;
    {
      std::vector<std::jthread> threads;
      for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          std::mt19937 random(t);
          const auto any = [&] { return static_cast<int>(random() % 12); };
          for (int i = 0; i < 1500; ++i) {
            const int weight = random() % 4 == 0 ? any() : i % 12;
            const int other = any();
            const auto coming = ask(weight);
            const auto beside = random() % 3 == 0 ? ask(other) : nullptr;
            if (random() % 2 == 0) expect({(weight + 1) % 12, (weight + 2) % 12, any(), any()});
            if (random() % 50 == 0) expect({});
            try {
              wrong += coming->wait() != expected(weight);
              wrong += beside && beside->wait() != expected(other);
              ++right;
            } catch (const Error&) {
              ++failed;
              if (beside) beside->wait_for_end();
            }
          }
        });
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(right + failed, 6000);
    EXPECT_GT(failed, 0) << "the faults were felt";
    EXPECT_GT(right, failed);
    staging.reset();
    EXPECT_EQ(ledger.used(), 0U);
  }
}

}  // namespace
}  // namespace haul::runtime
