#include "core/place/tally.h"

#include <algorithm>

namespace haul::core {

Tally::Tally(const World& world, Choices* choices)
    : world_(world),
      choices_(*choices),
      loads_(world.executors.size()),
      pieces_(world.executors.size()),
      uses_(world.order.size()),
      first_use_(world.units.size() + 1) {
  for (const std::uint32_t u : world.order) ++first_use_[u + 1];
  for (std::size_t u = 1; u < first_use_.size(); ++u) first_use_[u] += first_use_[u - 1];
  std::vector<std::uint32_t> next(first_use_.begin(), first_use_.end() - 1);
  for (std::uint32_t i = 0; i < world.order.size(); ++i) uses_[next[world.order[i]]++] = i;
  double compute = 0;
  for (std::uint32_t u = 0; u < world.units.size(); ++u) {
    const Choice choice = choices_[u];
    add(u, choice, 1, &loads_);
    if (choice.store != Store::kHere) ++pieces_[choice.executor][piece_of(u, choice.executor)];
    const bool again = u > 0 && choice.executor == choices_[u - 1].executor &&
                       world.units[u] == world.units[u - 1];
    if (!again) compute = compute_seconds(world.units[u], world.executors[choice.executor]);
    compute_ += compute;
  }
  for (std::size_t e = 0; e < loads_.size(); ++e) {
    if (!pieces_[e].empty()) loads_[e].piece = pieces_[e].begin()->first;
  }
  hops_ = hops_of(world, choices_);
}

void Tally::add(std::uint32_t unit, Choice choice, int sign, std::vector<Load>* loads) const {
  const Unit& item = world_.units[unit];
  Load& load = (*loads)[choice.executor];
  load.units += static_cast<std::uint32_t>(sign);
  load.resident += sign * item.extra;
  Size& bytes = choice.store == Store::kHere  ? load.resident
                : choice.store == Store::kRam ? load.from_ram
                                              : load.from_disk;
  bytes += sign * item.weights;
  const Executor& executor = world_.executors[choice.executor];
  if (choice.store == Store::kDisk) load.read += sign * copied_bytes(item, executor);
  if (choice.store != Store::kHere) load.copied_calls += sign * item.calls;
  const bool is_cpu = executor.device == kCpuDevice;
  if (!is_cpu && (executor.helped == 0 || choice.store != Store::kHere)) return;
  (is_cpu ? load.compute : load.compute_here) += sign * compute_seconds(item, executor);
}

// Of the pieces copied to an executor, less one of a unit.
Size Tally::largest_piece(std::size_t executor, std::uint32_t without) const {
  const auto& pieces = pieces_[executor];
  auto largest = pieces.begin();
  const Size piece = piece_of(without, static_cast<std::uint8_t>(executor));
  if (largest->first == piece && largest->second == 1) ++largest;
  return largest == pieces.end() ? 0 : largest->first;
}

int Tally::hops_after(std::uint32_t unit, std::uint8_t executor) const {
  int hops = hops_;
  const std::uint8_t now = choices_[unit].executor;
  if (executor == now) return hops;
  const auto differ = [](std::uint8_t a, std::uint8_t b) { return a != b ? 1 : 0; };
  for (std::uint32_t i = first_use_[unit]; i < first_use_[unit + 1]; ++i) {
    const std::uint32_t at = uses_[i];
    for (const std::uint32_t other : {at - 1, at + 1}) {
      if (other >= world_.order.size() || world_.order[other] == unit) continue;
      const std::uint8_t beside = choices_[world_.order[other]].executor;
      hops += differ(executor, beside) - differ(now, beside);
    }
  }
  return hops;
}

Tally::Neighbours Tally::neighbours(std::uint32_t unit) const {
  if (first_use_[unit + 1] - first_use_[unit] != 1) return {};
  const std::uint32_t at = uses_[first_use_[unit]];
  const auto executor = [&](std::uint32_t i) { return int{choices_[world_.order[i]].executor}; };
  return {true, at > 0 ? executor(at - 1) : -1,
          at + 1 < world_.order.size() ? executor(at + 1) : -1};
}

Tally::Figures Tally::after(std::uint32_t unit, Choice choice) {
  const Unit& item = world_.units[unit];
  const Choice before = choices_[unit];
  scratch_ = loads_;
  add(unit, before, -1, &scratch_);
  add(unit, choice, 1, &scratch_);
  if (before.store != Store::kHere) {
    scratch_[before.executor].piece = largest_piece(before.executor, unit);
  }
  if (choice.store != Store::kHere) {
    Size& piece = scratch_[choice.executor].piece;
    piece = std::max(piece, piece_of(unit, choice.executor));
  }
  double compute = compute_;
  if (choice.executor != before.executor) {
    compute += compute_seconds(item, world_.executors[choice.executor]) -
               compute_seconds(item, world_.executors[before.executor]);
  }
  return figures(scratch_, compute, hops_after(unit, choice.executor));
}

void Tally::move(std::uint32_t unit, Choice choice) {
  const Unit& item = world_.units[unit];
  const Choice before = choices_[unit];
  hops_ = hops_after(unit, choice.executor);
  compute_ += compute_seconds(item, world_.executors[choice.executor]) -
              compute_seconds(item, world_.executors[before.executor]);
  add(unit, before, -1, &loads_);
  add(unit, choice, 1, &loads_);
  if (before.store != Store::kHere) {
    auto& pieces = pieces_[before.executor];
    const auto found = pieces.find(piece_of(unit, before.executor));
    if (--found->second == 0) pieces.erase(found);
  }
  if (choice.store != Store::kHere) ++pieces_[choice.executor][piece_of(unit, choice.executor)];
  for (const std::size_t e : {before.executor, choice.executor}) {
    loads_[e].piece = pieces_[e].empty() ? 0 : pieces_[e].begin()->first;
  }
  choices_[unit] = choice;
}

// The same as predict().
Tally::Figures Tally::figures(const std::vector<Load>& loads, double compute, int hops) const {
  Figures result;
  result.hops = hops;
  Size ram = 0;
  Size disk = 0;
  Size read = 0;
  for (const Load& load : loads) {
    ram += load.from_ram;
    disk += load.from_disk;
    read += load.read;
  }
  double chain = compute + hops * world_.hop;
  double longest = static_cast<double>(read) / world_.disk_bandwidth;
  for (std::size_t e = 0; e < loads.size(); ++e) {
    const Load& load = loads[e];
    const Executor& executor = world_.executors[e];
    const bool is_cpu = executor.device == kCpuDevice;
    const Size own = load.resident + (load.units > 0 ? executor.fixed : 0);
    const Size free = executor.capacity - own - (is_cpu ? ram : 0);
    const Size slots = load.piece == 0 ? 0 : free >= 2 * load.piece ? 2 : 1;
    if (slots * load.piece > free || free < 0) return result;
    if (is_cpu) ram += own + slots * load.piece;
    const LinkLoad link{static_cast<double>(load.from_ram + load.from_disk),
                        static_cast<double>(load.copied_calls), load.compute_here,
                        loads.back().compute};
    if (slots == 1) chain += waiting_seconds(world_, executor, link, load.read);
    if (executor.link > 0) longest = std::max(longest, link_seconds(executor, link));
  }
  result.fits = disk <= world_.disk && (world_.computes_on_cpu() || ram <= world_.ram);
  if (result.fits) result.seconds = std::max(chain, longest);
  result.away = ram + 2 * disk;
  return result;
}

}  // namespace haul::core
