#pragma once

// The planner's picture of a model on a machine, and the time that a choice of places takes. This
// is the whole cost model; docs/guide/plan.md says it in words.
//
// Units (blocks, or single modules outside of blocks; units that share a tensor are one) are
// computed one after another, each on one executor: a GPU or the CPU. A unit's weights lie there,
// in RAM or on disk; in the last two cases they are copied to the executor for each pass. Of a
// table on disk the CPU reads the rows that a pass looks up, and needs no slot for them.
//
//   compute = max(bytes touched / executor's memory bandwidth, operations / its speed)
//             + calls * seconds of a call there
//   chain   = sum of compute + hop for each time the work moves to another executor
//             + copies to executors with a single slot, which cannot run ahead of the work
//   link    = bytes copied to a GPU / the bandwidth of its link + compute of the CPU, where any are
//             + the CPU's share of what it waits for, where it helps: calls of copied units *
//               seconds of handing over + compute of the units that lie there; it does not help
//               where the link alone is faster than that
//             + keys and values that lie in RAM / what the link gives alone
//   disk    = bytes read from disk / the disk's bandwidth
//   seconds = max(chain, link of each GPU, disk)
//
// Copies hide behind the work when an executor has two slots, each as large as the largest piece
// (a module that owns tensors) that is copied to it. They do not hide behind runs of units that the
// CPU computes: the slots are full long before such a run ends.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "haul/device_map.h"

namespace haul::core {

using Size = std::int64_t;  // bytes
inline constexpr Size kNoLimit = std::numeric_limits<Size>::max() / 4;

enum class Store : std::uint8_t { kHere, kRam, kDisk };

struct Unit {
  Size weights = 0;       // memory that they take
  Size touched = 0;       // bytes that a pass reads: of them, and of the KV cache
  Size piece = 0;         // slot of the largest part that is copied at once
  Size extra = 0;         // lies with the executor: KV cache, buffers that are not offloaded
  double operations = 0;  // of a pass
  int calls = 0;          // of a pass: modules that compute
  int by_input = 0;       // of these: whose weight lies by input
  double attended = 0;    // numbers of heads that a pass looks at
  Size margin = 0;        // of the weights: room around tensors
  Size buffers = 0;       // of the extra
  Size buffer_margin = 0;
  Size slots = 0;  // of all parts
  Size rows = 0;   // bytes that a pass looks up in a table; 0: it is none

  // What several take together; `piece` and what a pass does are not summed.
  void add_memory(const Unit& other) {
    weights += other.weights;
    extra += other.extra;
    margin += other.margin;
    buffers += other.buffers;
    buffer_margin += other.buffer_margin;
    slots += other.slots;
  }

  bool operator==(const Unit&) const = default;
};

struct Executor {
  Device device;
  Size capacity = 0;
  bool holds_weights = true;  // false: a CPU without a budget, which only computes
  Size fixed = 0;             // taken as soon as it is used: context, activations, workspace
  double bandwidth = 1;
  double speed = 1;
  double link = 0;  // bytes a second from RAM; 0: the executor reads RAM itself
  double call = 0;  // seconds of a call, beside what it reads and computes
  // Seconds more of one by input, and of a number that is looked at.
  double by_input = 0;
  double attended = 0;
  // Of what is copied, the share that the CPU multiplies instead, by which the link counts as
  // faster; seconds for which a call of a copied unit keeps it waiting; and what the link gives
  // without that, which some copies are better left to.
  double helped = 0;
  double help_call = 0;
  double alone = 0;
  double brought = 0;  // seconds of the link for keys and values, whatever is chosen

  bool operator==(const Executor&) const = default;
};

struct World {
  std::vector<Unit> units;
  std::vector<std::uint32_t> order;  // the units of a pass; one with shared tensors comes again
  std::vector<Executor> executors;   // GPUs by number; the CPU last, when it may compute
  Size ram = 0;                      // for weights that lie in RAM; 0: none may
  Size disk = kNoLimit;
  double disk_bandwidth = 1;
  double hop = 0;        // seconds
  double cpu_share = 0;  // of linear layers that lie in RAM for GPUs, when it waits for nothing

  bool computes_on_cpu() const {
    return !executors.empty() && executors.back().device == kCpuDevice;
  }
  bool has_gpu() const { return !executors.empty() && executors.front().device.is_accelerator(); }
};

// Whether the CPU may read rows of a table on disk.
bool looks_up_tables(const World& world);

// Numbers for units, the same for those of which it makes no difference which lies where.
struct UnitKinds {
  std::vector<std::uint32_t> of;  // by unit
  std::size_t count = 0;
};
UnitKinds kinds_of(const World& world);

struct Choice {
  std::uint8_t executor = 0;
  Store store = Store::kHere;

  bool operator==(const Choice&) const = default;
};
using Choices = std::vector<Choice>;

struct Timing {
  bool fits = false;
  double seconds = std::numeric_limits<double>::infinity();
  double chain = 0;
  double on_cpu = 0;  // of the chain's compute
  double disk = 0;
  std::vector<double> link;      // by executor
  std::vector<int> slots;        // by executor: 0 when nothing is copied to it
  std::vector<Size> slot_bytes;  // by executor: all of its slots
  std::vector<Size> used;        // by executor; RAM held for others is in ram_used
  Size ram_used = 0;             // all of RAM, a computing CPU included
  Size disk_used = 0;
  int hops = 0;
};

// Every choice that the world allows for a unit.
std::vector<Choice> allowed_choices(const World& world);
inline double compute_seconds(const Unit& unit, const Executor& executor) {
  return std::max(static_cast<double>(unit.touched) / executor.bandwidth,
                  unit.operations / executor.speed) +
         unit.calls * executor.call + unit.by_input * executor.by_input +
         unit.attended * executor.attended;
}
inline bool is_looked_up(const Unit& unit, const Executor& executor) {
  return unit.rows > 0 && executor.device == kCpuDevice;
}
// What a pass brings of weights that lie elsewhere, and the slot that it takes.
inline Size copied_bytes(const Unit& unit, const Executor& executor) {
  return is_looked_up(unit, executor) ? unit.rows : unit.weights;
}
inline Size copied_piece(const Unit& unit, const Executor& executor) {
  return is_looked_up(unit, executor) ? 0 : unit.piece;
}
// What is copied to a GPU: bytes, and calls of those units; beside it the seconds of the units that
// lie there and of those that the CPU computes.
struct LinkLoad {
  double bytes = 0;
  double calls = 0;
  double here = 0;
  double on_cpu = 0;
};
double link_seconds(const Executor& executor, const LinkLoad& load);
// Of copies to an executor with a single slot, for which the work waits: `from_disk` of the bytes
// have to be read first.
double waiting_seconds(const World& world, const Executor& executor, const LinkLoad& load,
                       Size from_disk);
// Times that the work moves from one executor to another.
int hops_of(const World& world, const Choices& choices);
Timing predict(const World& world, const Choices& choices);
// No choice of places that fits can be faster; docs/guide/plan.md has the proof.
double lower_bound(const World& world, const UnitKinds& kinds);

}  // namespace haul::core
