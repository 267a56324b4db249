// The lower bound that docs/guide/plan.md proves. The names there are those used here.

#include <algorithm>
#include <array>
#include <numeric>

#include "core/place/world.h"

namespace haul::core {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Units that can be cut anywhere: bytes, and what the chain grows by for each that the CPU
// computes.
struct Part {
  double bytes;
  double price;
};

class Bound {
 public:
  // With `looks_up` the CPU reads rows of tables on disk, and those take no memory; else of none.
  Bound(const World& world, const UnitKinds& kinds, bool looks_up)
      : world_(world), looks_up_(looks_up) {
    cpu_ = world.computes_on_cpu() ? &world.executors.back() : nullptr;
    count_units(kinds);
    for (const Executor& executor : world.executors) {
      const Size room = executor.capacity - executor.fixed;
      for (const int slots : {1, 2}) {
        const double lost = executor.holds_weights ? whole(room) - whole(room - slots * piece_) : 0;
        double& least = lost_[static_cast<std::size_t>(slots)];
        least = std::min(least, lost);
        if (executor.link > 0 && slots == 1) lost_on_gpu_ = std::min(lost_on_gpu_, lost);
      }
      if (executor.link == 0) continue;
      rooms_.push_back(whole(room));
      links_.push_back(executor.link);
      brought_ = std::min(brought_, executor.brought);
    }
    std::sort(rooms_.rbegin(), rooms_.rend());
    std::sort(links_.rbegin(), links_.rend());
    const bool cpu_only = cpu_ != nullptr && rooms_.empty();
    const Size ram = cpu_ == nullptr ? world.ram : cpu_->holds_weights ? cpu_->capacity : 0;
    ram_ = whole(ram - (cpu_only ? cpu_->fixed : 0));
  }

  // The least over how many GPUs are used, and over how what is copied is held.
  double seconds() const {
    double least = kNever;
    double room = 0;
    double links = 0;
    for (std::size_t gpus = 0; gpus <= rooms_.size(); ++gpus) {
      if (gpus > 0) {
        room += rooms_[gpus - 1];
        links += links_[gpus - 1];
      }
      const std::size_t executors = gpus + (looks_up_ ? 1 : 0);
      const double hops = world_.hop * static_cast<double>(std::max<std::size_t>(executors, 1) - 1);
      least = std::min({least, base_ + resident(gpus, room), base_ + hops + one_slot(gpus, room),
                        two_slots(gpus, room, links, hops)});
    }
    return least;
  }

 private:
  void count_units(const UnitKinds& kinds) {
    Size divisor = 0;
    piece_ = kNoLimit;
    double base = 0;
    for (std::size_t u = 0; u < kinds.of.size();) {
      const std::uint32_t kind = kinds.of[u];
      const Unit& unit = world_.units[u];
      const Size weights = looks_up_ && unit.rows > 0 ? 0 : unit.weights;
      divisor = std::gcd(divisor, std::gcd(weights, unit.extra));
      if (weights > 0) piece_ = std::min(piece_, unit.piece);
      double fastest = kNever;
      for (const Executor& e : world_.executors) {
        fastest = std::min(fastest, compute_seconds(unit, e));
      }
      const std::size_t begin = u;
      for (; u < kinds.of.size() && kinds.of[u] == kind; ++u) base += fastest;
      const double count = static_cast<double>(u - begin);
      const double bytes = static_cast<double>(weights + unit.extra);
      total_ += count * bytes;
      weights_ += count * static_cast<double>(weights);
      if (bytes == 0) continue;
      const double more = cpu_ == nullptr ? kNever : compute_seconds(unit, *cpu_) - fastest;
      parts_.push_back({count * bytes, more / bytes});
    }
    base_ = base;
    divisor_ = std::max<Size>(1, divisor);
    if (piece_ == kNoLimit) piece_ = 0;
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.price < b.price; });
  }

  // What units can take of a room: all of them are multiples of the divisor.
  double whole(Size room) const {
    const Size units = std::max<Size>(0, room) / divisor_;
    return static_cast<double>(units * divisor_);
  }

  // What the chain grows by when the CPU computes `bytes`.
  double price_of(double bytes) const {
    double price = 0;
    for (const Part& part : parts_) {
      if (bytes <= 0) break;
      price += std::min(bytes, part.bytes) * part.price;
      bytes -= part.bytes;
    }
    return bytes > 0 ? kNever : price;
  }

  // Nothing is copied.
  double resident(std::size_t gpus, double room) const {
    const double on_cpu = std::max(0.0, total_ - room);
    if (on_cpu > 0 && (cpu_ == nullptr || (cpu_->holds_weights && on_cpu > ram_))) return kNever;
    const std::size_t executors = gpus + (on_cpu > 0 || looks_up_ ? 1 : 0);
    const double hops = static_cast<double>(std::max<std::size_t>(executors, 1) - 1);
    return price_of(on_cpu) + hops * world_.hop;
  }

  double from_disk(double room, int slots) const {
    // A CPU that holds no weights can hold any amount of KV cache.
    const double all = cpu_ != nullptr && !cpu_->holds_weights ? weights_ : total_;
    const double lost = std::min(lost_[static_cast<std::size_t>(slots)], room + ram_);
    return std::max(0.0, all - (room + ram_ - lost)) / world_.disk_bandwidth;
  }

  // Bytes that GPUs do not hold when at least one of them has a slot.
  double away(double room) const {
    return std::max(0.0, total_ - (room - std::min(lost_on_gpu_, room)));
  }

  // Every executor that is copied to has a single slot: the chain waits for the copies.
  double one_slot(std::size_t gpus, double room) const {
    const double disk = from_disk(room, 1);
    const double resident = price_of(std::max(0.0, total_ - room));
    if (gpus == 0) return std::max(resident, disk);
    double rest = away(room);
    double price = 0;
    for (const Part& part : parts_) {
      if (rest <= 0 || part.price * links_[0] >= 1) break;
      const double bytes = std::min(rest, part.bytes);
      price += bytes * part.price;
      rest -= bytes;
    }
    return std::max(std::min(resident, price + rest / links_[0]), disk);
  }

  // Some executor has two slots, or pieces take no room: the copies run beside the chain.
  double two_slots(std::size_t gpus, double room, double links, double hops) const {
    const double disk = from_disk(room, 2);
    const double chain = base_ + hops;
    const double resident = price_of(std::max(0.0, total_ - room));
    if (gpus == 0) return std::max(chain + resident, disk);
    // The CPU takes the cheapest parts, as long as that takes less than copying them and the links
    // take longer than the chain.
    double rest = away(room);
    double price = 0;
    for (const Part& part : parts_) {
      const double gap = rest - chain * links;
      if (gap <= 0 || part.price * links >= 1) break;
      const double bytes = std::min(part.bytes, gap);
      price += bytes * part.price;
      rest -= bytes;
    }
    const double link = rest / links + brought_;
    return std::max(std::min(chain + resident, price + std::max(chain, link)), disk);
  }

  const World& world_;
  const bool looks_up_;
  const Executor* cpu_ = nullptr;
  std::vector<Part> parts_;
  double base_ = 0;     // every unit on the executor that computes it fastest
  double total_ = 0;    // weights and KV cache
  double weights_ = 0;  // alone
  Size divisor_ = 1;
  Size piece_ = 0;  // the smallest
  double ram_ = 0;
  std::vector<double> rooms_;  // of GPUs, the largest first
  std::vector<double> links_;  // the fastest first
  // By slots: the least room that they take from an executor.
  std::array<double, 3> lost_{0, kNever, kNever};
  double lost_on_gpu_ = kNever;  // by one slot, from a GPU
  double brought_ = kNever;      // seconds of every link, whatever is copied
};

}  // namespace

double lower_bound(const World& world, const UnitKinds& kinds) {
  if (world.executors.empty() || world.units.empty()) return 0;
  const double whole = Bound(world, kinds, false).seconds();
  if (!looks_up_tables(world)) return whole;
  return std::min(whole, Bound(world, kinds, true).seconds());
}

}  // namespace haul::core
