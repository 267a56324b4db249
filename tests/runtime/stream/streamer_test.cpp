#include "runtime/stream/streamer.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/stream/staging.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::runtime {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Bytes kSize = 50'000;

// As a GPU's: weights come from files through a little memory, which is read ahead into.
class StagedLane final : public Lane {
 public:
  explicit StagedLane(std::shared_ptr<DiskReader> disk)
      : staging_(std::move(disk), 16'384, 8, [](Bytes size) {
          return std::make_unique<Slab>(
              c10::Device(c10::kCPU), size,
              Ledger("staging", std::nullopt).reserve(Tag::kStaging, size));
        }) {}

  c10::Device device() const override { return c10::kCPU; }
  Bytes slack() const override { return kReadSlack; }
  void fill(const Home& home, std::byte* to, std::vector<GpuPoint> /*after*/, Done done) override {
    if (home.host != nullptr) {
      std::memcpy(to, home.host, home.size);
      done(nullptr, {});
      return;
    }
    struct Arrival {
      std::atomic<Bytes> left = 0;
      std::atomic<bool> failed = false;
    };
    auto arrival = std::make_shared<Arrival>();
    arrival->left = staging_.pieces_of(home.size);
    staging_.read(home, [=, this](const Staging::Piece& piece, std::exception_ptr error) {
      if (error) arrival->failed = true;
      std::memcpy(to + piece.offset, piece.data, piece.size);
      staging_.give_back(piece.data);
      if (--arrival->left > 0) return;
      if (arrival->failed) {
        error = std::make_exception_ptr(Error(ErrorKind::kResource, "some piece of 'weights'"));
      }
      done(error, {});
    });
  }
  void expect(std::span<const Home> homes) override { staging_.expect(homes); }
  std::size_t reach() const override { return staging_.reach(); }
  void wait(const GpuPoint& /*ready*/) override {}
  GpuPoint used() noexcept override { return {}; }
  void read_back(std::byte* host, const std::byte* from, Bytes size) override {
    std::memcpy(host, from, size);
  }

 private:
  Staging staging_;
};

enum class Through { kNothing, kStaging };

// Weights in a file, each filled with its number; some of odd sizes.
class StreamerTest : public testing::TestWithParam<Through> {
 protected:
  std::unique_ptr<Streamer> make(int count, Bytes slots, const DiskReader::Options& options = {},
                                 SlotMemory memory = SlotMemory::kKept) {
    std::string bytes;
    std::vector<Bytes> offsets;
    for (int i = 0; i < count; ++i) {
      offsets.push_back(bytes.size());
      bytes += std::string(size_of(i), static_cast<char>(i));
    }
    const auto path = folder.write("weights", bytes);
    disk = std::make_shared<DiskReader>(options);
    std::unique_ptr<Lane> lane = make_cpu_lane(disk);
    if (GetParam() == Through::kStaging) lane = std::make_unique<StagedLane>(disk);
    auto streamer = std::make_unique<Streamer>(std::move(lane), ledger, slots, memory);
    for (int i = 0; i < count; ++i) {
      streamer->add("w" + std::to_string(i), {nullptr, disk->open(path), offsets[i], size_of(i)});
    }
    return streamer;
  }

  static Bytes size_of(int i) { return kSize + static_cast<Bytes>(i % 3) * 8; }
  static Bytes room(int weights) { return weights * Streamer::slot_size(kSize + 16, kReadSlack); }

  // Whether a leased weight holds what it should.
  static bool right(const std::byte* data, int weight) {
    const auto expected = static_cast<std::byte>(weight);
    return data[0] == expected && data[size_of(weight) - 1] == expected &&
           std::memcmp(data, data + 1, size_of(weight) - 1) == 0;
  }

  static void use(Streamer& streamer, const std::vector<int>& weights) {
    std::vector<std::byte*> data;
    streamer.lease(weights, data);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_TRUE(right(data[i], weights[i])) << weights[i];
    }
    streamer.release(weights);
  }

  Bytes from_disk() const { return disk->counts().bytes_direct + disk->counts().bytes_cached; }

  test::TemporaryFolder folder;
  std::shared_ptr<DiskReader> disk;
  Ledger ledger{"RAM", std::nullopt};
};

INSTANTIATE_TEST_SUITE_P(Lanes, StreamerTest, testing::Values(Through::kNothing, Through::kStaging),
                         [](const auto& through) {
                           return through.param == Through::kStaging ? "Staged" : "Straight";
                         });

TEST_P(StreamerTest, FetchesAheadInTheOrderOfUse) {
  const auto streamer = make(12, room(4));
  for (int pass = 0; pass < 5; ++pass) {
    for (int i = 0; i < 12; ++i) {
      use(*streamer, {i});
      // Time to read ahead; what is asked for next has then been fetched.
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  }
  const StreamCounts counts = streamer->counts();
  EXPECT_EQ(counts.leases, 60U);
  EXPECT_GE(counts.hits, 50U);
  EXPECT_EQ(counts.unplanned, 0U);
  EXPECT_EQ(ledger.peak(), room(4)) << "nothing but the slots";
}

TEST_P(StreamerTest, KeepsEverythingThatFits) {
  const auto streamer = make(6, room(6));
  for (int pass = 0; pass < 4; ++pass) {
    for (int i = 0; i < 6; ++i) use(*streamer, {i});
  }
  Bytes all = 0;
  for (int i = 0; i < 6; ++i) all += size_of(i);
  EXPECT_EQ(streamer->counts().bytes, all) << "each was read once";
}

TEST_P(StreamerTest, ReadsHardlyMoreThanItUses) {
  const auto streamer = make(24, room(2));
  Bytes needed = 0;
  for (int pass = 0; pass < 10; ++pass) {
    for (int i = 0; i < 24; i += 2) use(*streamer, {i, i + 1});
    for (int i = 0; i < 24; ++i) needed += size_of(i);
    EXPECT_LE(static_cast<double>(from_disk()), 1.15 * static_cast<double>(needed)) << pass;
  }
}

TEST_P(StreamerTest, LeasesSeveralAtOnceAndTakesRoomElsewhereOnlyWhenItMust) {
  const auto streamer = make(6, room(3));
  use(*streamer, {0, 1, 2});
  use(*streamer, {3, 4, 5});
  EXPECT_EQ(streamer->counts().unplanned, 0U);
  use(*streamer, {0, 1, 2, 3, 4});
  EXPECT_EQ(streamer->counts().unplanned, 2U);
  EXPECT_GT(ledger.peak(), room(3));
  for (int i = 0; i < 6; ++i) use(*streamer, {i});
}

// Brings at once, and nothing in truth.
class InstantLane final : public Lane {
 public:
  c10::Device device() const override { return c10::kCPU; }
  Bytes slack() const override { return 0; }
  void fill(const Home& /*home*/, std::byte* /*to*/, std::vector<GpuPoint> /*after*/,
            Done done) override {
    done(nullptr, {});
  }
  void wait(const GpuPoint& /*ready*/) override {}
  GpuPoint used() noexcept override { return {}; }
  void read_back(std::byte* /*host*/, const std::byte* /*from*/, Bytes /*size*/) override {}
};

// Keeps what it was told to expect.
class ListeningLane final : public Lane {
 public:
  explicit ListeningLane(std::vector<std::vector<Bytes>>& told) : told_(told) {}
  c10::Device device() const override { return c10::kCPU; }
  Bytes slack() const override { return 0; }
  void fill(const Home& /*home*/, std::byte* /*to*/, std::vector<GpuPoint> /*after*/,
            Done done) override {
    done(nullptr, {});
  }
  void expect(std::span<const Home> homes) override {
    told_.emplace_back();
    for (const Home& home : homes) told_.back().push_back(home.offset);
  }
  std::size_t reach() const override { return 3; }
  void wait(const GpuPoint& /*ready*/) override {}
  GpuPoint used() noexcept override { return {}; }
  void read_back(std::byte* /*host*/, const std::byte* /*from*/, Bytes /*size*/) override {}

 private:
  std::vector<std::vector<Bytes>>& told_;
};

TEST(Streamer, TellsTheLaneWhichFilesComeAfterTheSlotsOnceItKnows) {
  std::vector<std::vector<Bytes>> told;
  Streamer streamer(std::make_unique<ListeningLane>(told), Ledger("slots", std::nullopt),
                    2 * Streamer::slot_size(kSize, 0));
  std::byte host{};
  for (Bytes i = 0; i < 8; ++i) streamer.add("w", {i == 4 ? &host : nullptr, 0, i, kSize});
  std::vector<std::byte*> data;
  const auto pass = [&] {
    told.clear();
    for (int i = 0; i < 8; ++i) {
      const std::vector<int> weights = {i};
      streamer.lease(weights, data);
      streamer.release(weights);
    }
  };
  pass();
  EXPECT_THAT(told.back(), ElementsAre(1, 2, 3)) << "from the start";
  told.pop_back();
  EXPECT_THAT(told, Each(IsEmpty())) << "nothing is known";
  pass();
  pass();
  EXPECT_THAT(told, ElementsAre(ElementsAre(2, 3, 5), ElementsAre(3, 5, 6), ElementsAre(5, 6, 7),
                                ElementsAre(5, 6, 7), ElementsAre(6, 7, 0), ElementsAre(7, 0, 1),
                                ElementsAre(0, 1, 2), ElementsAre(1, 2, 3)));
  told.clear();
  streamer.move_home(6, {&host, 0, 0, kSize});
  EXPECT_THAT(told, ElementsAre(IsEmpty()));
  streamer.drop(2);
  EXPECT_THAT(told, ElementsAre(IsEmpty(), IsEmpty()));
  pass();
  EXPECT_THAT(told.front(), ElementsAre(3, 5, 7));
  std::jthread(pass).join();
  EXPECT_EQ(told.size(), 7U) << "not by the first lease of another thread";
}

// The layers of a Llama, in proportion, with slots for two of the largest weights as a plan has
// them: each pass brings each weight once, whether passes use whole weights or parts. A table has a
// part, too, and is used whole all the same.
TEST(Streamer, BringsEachWeightOfLayersOnceAPass) {
  constexpr Bytes kUnit = 4096;
  constexpr int kLayers = 15;
  Streamer streamer(std::make_unique<InstantLane>(), Ledger("slots", std::nullopt),
                    2 * Streamer::slot_size(112 * kUnit, 0) + 1024, SlotMemory::kKept);
  std::byte host{};
  std::vector<std::vector<int>> whole(kLayers);
  std::vector<std::vector<int>> parts(kLayers);
  const int table = streamer.add("table", {&host, 0, 0, 16 * kUnit});
  streamer.add_part(table, 8 * kUnit);
  Bytes all = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Bytes size : {32, 8, 8, 32, 112, 112, 112, 0, 0}) {
      const int weight = streamer.add("whole", {&host, 0, 0, std::max<Bytes>(size * kUnit, 4)});
      whole[layer].push_back(weight);
      parts[layer].push_back(size > 0 ? streamer.add_part(weight, size * kUnit / 2) : weight);
      all += size * kUnit;
    }
  }
  std::vector<std::byte*> data;
  const auto use = [&](const std::vector<int>& weights) {
    streamer.lease(weights, data);
    streamer.release(weights);
  };
  Bytes before = 0;
  for (const bool in_parts : {false, false, true, true, true, false, true}) {
    use({table});
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::vector<int>& w = in_parts ? parts[layer] : whole[layer];
      use({w[7]});  // norms have the last names, and come before the others
      if (in_parts) {
        for (const int weight : {w[0], w[1], w[2], w[3], w[8], w[4], w[5], w[6]}) use({weight});
      } else {
        use({w[0], w[1], w[2]});
        use({w[3]});
        use({w[8]});
        use({w[4], w[5]});
        use({w[6]});
      }
    }
    const Bytes brought = streamer.counts().bytes - std::exchange(before, streamer.counts().bytes);
    const Bytes needed = in_parts ? all / 2 : all;
    EXPECT_LE(static_cast<double>(brought), 1.15 * static_cast<double>(needed)) << in_parts;
  }
  EXPECT_EQ(streamer.counts().unplanned, 0U);
}

TEST_P(StreamerTest, SaysWhichWeightDoesNotFitTheBudget) {
  ledger = Ledger("RAM", room(1));
  const auto streamer = make(3, room(1));
  test::expect_error(ErrorKind::kResource, AllOf(HasSubstr("RAM"), HasSubstr("slots have no room")),
                     [&] {
                       use(*streamer, {0, 1});
                     });
  use(*streamer, {2});
  use(*streamer, {0});
}

TEST_P(StreamerTest, TellsAFailedReadAndTriesAgain) {
  std::atomic<bool> broken = false;
  DiskReader::Options options;
  options.fault = [&](int, Bytes, Bytes) -> std::optional<int> {
    return broken ? std::optional(EIO) : std::nullopt;
  };
  const auto streamer = make(8, room(2), options);
  use(*streamer, {0});
  broken = true;
  test::expect_error(ErrorKind::kResource, AllOf(HasSubstr("weight 'w5'"), HasSubstr("weights")),
                     [&] { use(*streamer, {5}); });
  broken = false;
  for (int i = 0; i < 8; ++i) use(*streamer, {i});
}

TEST_P(StreamerTest, AReadThatBeganBeforeItWasAskedForAndFailedIsTriedAgain) {
  std::atomic<bool> asked = false;
  std::atomic<int> failed = 0;
  DiskReader::Options options;
  options.fault = [&](int, Bytes offset, Bytes size) -> std::optional<int> {
    const bool last_weight = offset + size > 2 * kSize + 10'000;
    if (!last_weight || failed > 0) return std::nullopt;
    // Not for ever: the first weight may have to come by this thread yet.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!asked && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    ++failed;
    return EIO;
  };
  const auto streamer = make(3, room(3), options);
  use(*streamer, {0});  // and the others are on their way
  std::jthread watch([&] {
    while (streamer->counts().leases < 2) std::this_thread::yield();
    asked = true;
  });
  use(*streamer, {2});
  EXPECT_GT(failed, 0);
}

TEST_P(StreamerTest, ForgetsDroppedWeights) {
  const auto streamer = make(6, room(2));
  use(*streamer, {0});
  streamer->drop(1);
  streamer->drop(2);
  for (int i : {0, 3, 4, 5, 0, 3}) use(*streamer, {i});
}

TEST_P(StreamerTest, MovedHomesAreReadFromTheirNewPlace) {
  const auto streamer = make(4, room(1));
  std::vector<std::byte> home(size_of(2), static_cast<std::byte>(2));
  use(*streamer, {2});
  streamer->move_home(2, {home.data(), 0, 0, home.size()});
  use(*streamer, {3});
  const Bytes before = from_disk();
  std::vector<std::byte*> data;
  const std::vector<int> two = {2};
  streamer->lease(two, data);
  EXPECT_TRUE(right(data[0], 2));
  streamer->release(two);
  EXPECT_LE(from_disk(), before + size_of(3));
}

TEST_P(StreamerTest, TakesTheSlotsWithTheFirstLeaseAndGivesThemBackWhenAllLeave) {
  const auto streamer = make(6, room(6), {}, SlotMemory::kWhileUsed);
  EXPECT_FALSE(streamer->has_slots());
  EXPECT_EQ(ledger.used(), 0U);
  Bytes all = 0;
  for (int i = 0; i < 6; ++i) all += size_of(i);
  for (Bytes turn = 1; turn <= 3; ++turn) {
    for (int pass = 0; pass < 3; ++pass) {
      for (int i = 0; i < 6; ++i) use(*streamer, {i});
    }
    EXPECT_EQ(ledger.used(), room(6));
    EXPECT_EQ(streamer->counts().bytes, turn * all) << "each was read once a turn";
    streamer->leave();
    EXPECT_FALSE(streamer->has_slots());
    EXPECT_EQ(ledger.used(), 0U);
    streamer->leave();
  }
  const auto kept = make(2, room(2));
  kept->leave();
  EXPECT_TRUE(kept->has_slots()) << "slots of the other kind stay";
}

TEST_P(StreamerTest, LeavesWithTheLastRelease) {
  const auto streamer = make(4, room(4), {}, SlotMemory::kWhileUsed);
  std::vector<std::byte*> data;
  const std::vector<int> one = {1};
  const std::vector<int> two = {2};
  streamer->lease(one, data);
  streamer->leave();
  EXPECT_TRUE(right(data[0], 1)) << "what is leased stays";
  streamer->lease(two, data);
  streamer->release(one);
  EXPECT_TRUE(streamer->has_slots());
  EXPECT_TRUE(right(data[0], 2));
  streamer->release(two);
  EXPECT_FALSE(streamer->has_slots());
  use(*streamer, {3});
  EXPECT_TRUE(streamer->has_slots()) << "it was told to leave once";
}

TEST_P(StreamerTest, LeavesWithTheLastLeaseThatFails) {
  std::atomic<bool> told = false;
  DiskReader::Options options;
  options.fault = [&](int, Bytes, Bytes) -> std::optional<int> {
    while (!told) std::this_thread::yield();
    return EIO;
  };
  const auto streamer = make(2, room(2), options, SlotMemory::kWhileUsed);
  std::jthread other([&] {
    while (!streamer->has_slots()) std::this_thread::yield();
    streamer->leave();  // which it cannot yet
    told = true;
  });
  std::vector<std::byte*> data;
  const std::vector<int> one = {1};
  EXPECT_THROW(streamer->lease(one, data), Error);
  EXPECT_FALSE(streamer->has_slots());
}

TEST_P(StreamerTest, LeavesWhileOthersLeaseAndReadsFail) {
  std::mutex mutex;
  std::mt19937 dice(5);
  DiskReader::Options options;
  options.fault = [&](int, Bytes, Bytes) -> std::optional<int> {
    const std::lock_guard lock(mutex);
    return dice() % 100 < 3 ? std::optional(EIO) : std::nullopt;
  };
  const auto streamer = make(8, room(8), options, SlotMemory::kWhileUsed);
  std::atomic<int> wrong = 0;
  std::atomic<bool> end = false;
  {
    std::jthread leaving([&] {
      while (!end) streamer->leave();
    });
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        std::vector<std::byte*> data;
        for (int i = 0; i < 500; ++i) {
          const std::vector<int> weights = {static_cast<int>(random() % 8)};
          try {
            streamer->lease(weights, data);
          } catch (const Error&) {
            continue;
          }
          wrong += !right(data[0], weights[0]);
          streamer->release(weights);
        }
      });
    }
    threads.clear();
    end = true;
  }
  EXPECT_EQ(wrong, 0);
  streamer->leave();
  EXPECT_EQ(ledger.used(), 0U);
}

// Several threads, each on its own way through the weights, and reads that fail now and then:
// nothing wrong is seen, nothing waits for ever, nothing is left behind.
TEST_P(StreamerTest, SurvivesFaultsUnderManyThreads) {
  std::mutex mutex;
  std::mt19937 dice(7);
  DiskReader::Options options;
  options.fault = [&](int, Bytes, Bytes) -> std::optional<int> {
    const std::lock_guard lock(mutex);
    const auto roll = dice() % 100;
    if (roll < 3) return EIO;
    if (roll < 10) return 0;  // a short read
    return std::nullopt;
  };
  const auto streamer = make(16, room(5), options);
  std::atomic<int> done = 0;
  std::atomic<int> failed = 0;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        std::vector<std::byte*> data;
        for (int i = 0; i < 2500; ++i) {
          std::vector<int> weights = {static_cast<int>(random() % 4 == 0 ? random() % 16 : i % 16)};
          if (random() % 3 == 0)
            weights.push_back((weights[0] + 1 + static_cast<int>(random() % 3)) % 16);
          try {
            streamer->lease(weights, data);
          } catch (const Error&) {
            ++failed;
            continue;
          }
          for (std::size_t k = 0; k < weights.size(); ++k) wrong += !right(data[k], weights[k]);
          streamer->release(weights);
          ++done;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(done + failed, 10'000);
  EXPECT_GT(failed, 0) << "the faults were felt";
  EXPECT_EQ(streamer->counts().unplanned, 0U);
  EXPECT_EQ(ledger.used(), room(5)) << "nothing is left beside the slots";
}

}  // namespace
}  // namespace haul::runtime
