#pragma once

// The weights that lie elsewhere than their execution device computes, and the slots on it through
// which they come and go. A lease means that a weight's bytes are there; what is expected next is
// fetched while the present is computed. The slots are one slab, carved as the weights need it, and
// hold what is in use and what comes next, nothing else; the lane is told what follows. Any thread.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "haul/bytes.h"
#include "haul/error.h"
#include "runtime/stream/lane.h"
#include "runtime/stream/use_order.h"
#include "runtime/tiers/arena.h"
#include "runtime/tiers/ledger.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {

struct StreamCounts {
  Bytes bytes = 0;           // brought to the device
  std::uint64_t leases = 0;  // weights asked for
  std::uint64_t hits = 0;    // of them there at once
  std::uint64_t waits = 0;   // of them waited for
  double wait_seconds = 0;
  std::uint64_t unplanned = 0;  // of them too large for the slots beside those in use
  Bytes unplanned_peak = 0;     // memory outside of the slots that those took
};

// When the memory of the slots is taken.
enum class SlotMemory : std::uint8_t {
  kKept,       // at the start, for good
  kWhileUsed,  // when a weight is asked for, until leave()
};

class Streamer {
 public:
  // `ledger` is the execution device's.
  Streamer(std::unique_ptr<Lane> lane, Ledger ledger, Bytes slots,
           SlotMemory memory = SlotMemory::kKept);
  Streamer(const Streamer&) = delete;
  Streamer& operator=(const Streamer&) = delete;
  // Waits for what is on its way.
  ~Streamer();

  c10::Device device() const { return lane_->device(); }
  // What `bytes` of a weight take of the slots.
  static Bytes slot_size(Bytes bytes, Bytes slack);

  // The name is for messages. One that is not expected does not come before it is asked for. Before
  // the first lease.
  int add(std::string name, Home home, bool expected = true);
  // The first bytes of a weight in RAM, as a weight of its own: a pass asks for whole weights, or
  // for parts of those that have one.
  int add_part(int whole, Bytes size);
  // Where the weight is kept from now on; its present copy is the newer one already.
  void move_home(int weight, Home home);
  // The weight is not asked for again. Waits for it if it is on its way.
  void drop(int weight);

  // Where the weight is kept.
  Home home(int weight) const;
  // Bytes of weights that were read from where they are kept, past the slots.
  void count_read(Bytes bytes);

  // Blocks until all of them (each named once) are on the device. `data` becomes where they lie.
  // Where one cannot be had, nothing is leased and the reason is thrown; an Error names the weight.
  void lease(std::span<const int> weights, std::vector<std::byte*>& data);
  // The caller's work on the device that used them must have been issued.
  void release(std::span<const int> weights);

  // With kWhileUsed: all weights go, and the memory of the slots with them, until the next lease.
  // While some are leased, that happens with the last of their releases. Waits for what is on its
  // way, never for a lease.
  void leave();
  SlotMemory slot_memory() const { return memory_; }
  // Whether the slots have memory at present.
  bool has_slots() const;

  Lane& lane() { return *lane_; }

  StreamCounts counts() const;

 private:
  enum class State : std::uint8_t { kAway, kComing, kHere, kFailed };
  struct Weight {
    std::string name;
    Home home;
    int whole = 0;            // the weight itself, or what it is a part of
    int part = -1;            // of it
    bool parted = false;      // has been asked for by its part
    bool whole_only = false;  // was not, where others were
    State state = State::kAway;
    int leases = 0;
    bool dropped = false;
    Bytes slot = 0;               // offset in the slab
    std::unique_ptr<Slab> extra;  // memory of its own where the slots have no room
    std::byte* data = nullptr;
    GpuPoint ready;
    std::vector<GpuPoint> used;  // work that reads the slot
    std::optional<Error> failure;
    std::uint64_t wanted = 0;  // round of the last prefetch that expects it soon
    int rank = 0;              // how soon
  };
  // Where a thread is.
  struct Place {
    UseOrder::Position position;  // among whole weights
    bool in_parts = false;
  };
  struct Fill {
    int weight;
    std::vector<GpuPoint> after;
  };

  // All of these are called with mutex_ held, but for start and arrived.
  void take_slots();
  void leave_unless_leased(std::unique_lock<std::mutex>& lock);
  Bytes slot_size(const Weight& weight) const;
  Bytes slots_for(std::span<const int> weights) const;
  bool place(int weight, bool for_now, std::vector<Fill>& fills);
  void place_outside(int weight, std::vector<Fill>& fills);
  void coming(int weight, std::byte* to, std::vector<Fill>& fills);
  bool evict_one(bool for_now);
  void vacate(int weight);
  bool place_all(std::span<const int> weights, bool outside, std::vector<Fill>& fills);
  void place_or_wait(std::unique_lock<std::mutex>& lock, std::span<const int> weights,
                     std::vector<Fill>& fills);
  void note_use(Place& at, int weight);
  int step(Place& at) const;
  std::optional<Place> prefetch(Place at, std::vector<Fill>& fills);
  std::optional<std::vector<Home>> expected_after(const std::optional<Place>& slots_end);
  void give_up(std::unique_lock<std::mutex>& lock, std::span<const int> weights);
  void fetch(std::unique_lock<std::mutex>& lock, std::span<const int> weights,
             const std::vector<Fill>& fills,
             const std::optional<std::vector<Home>>& ahead = std::nullopt);
  void try_again(std::span<const int> weights, std::vector<Fill>& fills);
  void start(const std::vector<Fill>& fills);
  void arrived(int weight, std::exception_ptr error, GpuPoint ready);

  std::unique_ptr<Lane> lane_;
  Ledger ledger_;
  const SlotMemory memory_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Slab> slab_;
  bool leaving_ = false;
  Arena arena_;
  std::vector<Weight> weights_;
  std::vector<int> placed_;        // all that are not kAway
  std::vector<GpuPoint> vacated_;  // work that may still read slots given up since the last fill
  UseOrder order_;
  std::unordered_map<std::thread::id, Place> places_;
  std::thread::id last_;  // that leased
  std::uint64_t round_ = 0;
  int coming_ = 0;
  int leased_ = 0;  // weights with a lease
  Bytes unplanned_ = 0;
  StreamCounts counts_;
};

}  // namespace haul::runtime
