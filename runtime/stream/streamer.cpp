#include "runtime/stream/streamer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "haul/error.h"
#include "haul/tensor_memory.h"

namespace haul::runtime {
namespace {

// A value of its own, because several threads may throw it.
std::optional<Error> as_error(std::exception_ptr exception) {
  if (!exception) return std::nullopt;
  try {
    std::rethrow_exception(std::move(exception));
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::kResource, error.what());
  }
}

}  // namespace

Streamer::Streamer(std::unique_ptr<Lane> lane, Ledger ledger, Bytes slots, SlotMemory memory)
    : lane_(std::move(lane)), ledger_(std::move(ledger)), memory_(memory), arena_(slots) {
  if (memory_ == SlotMemory::kKept) take_slots();
}

Streamer::~Streamer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return coming_ == 0; });
  for (const Weight& weight : weights_) {
    for (const GpuPoint& point : weight.used) settle(point);
  }
}

Bytes Streamer::slot_size(Bytes bytes, Bytes slack) {
  return aligned_memory(std::max<Bytes>(bytes, 1)) + 2 * aligned_memory(slack);
}

Bytes Streamer::slot_size(const Weight& weight) const {
  return slot_size(weight.home.size, lane_->slack());
}

int Streamer::add(std::string name, Home home, bool expected) {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<int>(weights_.size());
  Weight& weight = weights_.emplace_back();
  weight.name = std::move(name);
  weight.home = home;
  weight.whole = number;
  expected ? order_.add_weight() : order_.skip_number();
  return number;
}

int Streamer::add_part(int whole, Bytes size) {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<int>(weights_.size());
  Weight& part = weights_.emplace_back();
  part.name = weights_[whole].name;
  part.home = {weights_[whole].home.host, 0, 0, size};
  part.whole = whole;
  weights_[whole].part = number;
  order_.skip_number();
  return number;
}

void Streamer::move_home(int weight, Home home) {
  {
    const std::lock_guard lock(mutex_);
    weights_[weight].home = home;
  }
  lane_->expect({});
}

Home Streamer::home(int weight) const {
  const std::lock_guard lock(mutex_);
  return weights_[weight].home;
}

void Streamer::count_read(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  counts_.bytes += bytes;
}

void Streamer::drop(int index) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return weights_[index].state != State::kComing; });
  if (weights_[index].state != State::kAway) vacate(index);
  weights_[index].dropped = true;
  changed_.notify_all();
  lock.unlock();
  lane_->expect({});
}

void Streamer::take_slots() {
  if (slab_) return;
  const Bytes size = arena_.size();
  slab_ = std::make_unique<Slab>(lane_->device(), size, ledger_.reserve(Tag::kSlots, size));
}

void Streamer::leave() {
  std::unique_lock lock(mutex_);
  if (memory_ == SlotMemory::kKept || !slab_) return;
  leaving_ = true;
  lock.unlock();
  lane_->expect({});
  lock.lock();
  leave_unless_leased(lock);
}

void Streamer::leave_unless_leased(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return coming_ == 0 || leased_ > 0 || !leaving_; });
  if (leased_ > 0 || !leaving_) return;  // the last release does it, or someone has
  while (!placed_.empty()) vacate(placed_.back());
  for (const GpuPoint& point : vacated_) settle(point);
  vacated_.clear();
  slab_.reset();
  arena_ = Arena(arena_.size());  // the next to come begin at its start
  leaving_ = false;
  changed_.notify_all();
}

bool Streamer::has_slots() const {
  const std::lock_guard lock(mutex_);
  return slab_ != nullptr;
}

StreamCounts Streamer::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Streamer::vacate(int index) {
  Weight& weight = weights_[index];
  for (GpuPoint& point : weight.used) vacated_.push_back(std::move(point));
  weight.used.clear();
  if (weight.extra) {
    for (const GpuPoint& point : vacated_) settle(point);  // before its memory goes
    unplanned_ -= weight.extra->size();
    weight.extra.reset();
  } else {
    arena_.free(weight.slot);
  }
  weight.state = State::kAway;
  weight.data = nullptr;
  weight.failure.reset();
  placed_.erase(std::find(placed_.begin(), placed_.end(), index));
}

// What is not expected soon goes first; then, if there is need now, what is expected last.
bool Streamer::evict_one(bool for_now) {
  int victim = -1;
  int worst = -1;
  for (const int index : placed_) {
    const Weight& weight = weights_[index];
    if (weight.leases > 0 || weight.state == State::kComing) continue;
    const bool soon = weight.wanted == round_;
    if (soon && !for_now) continue;
    const int rank = soon ? weight.rank : static_cast<int>(weights_.size()) * 2;
    if (rank > worst) {
      worst = rank;
      victim = index;
    }
  }
  if (victim < 0) return false;
  vacate(victim);
  return true;
}

void Streamer::coming(int index, std::byte* to, std::vector<Fill>& fills) {
  Weight& weight = weights_[index];
  weight.state = State::kComing;
  weight.data = to;
  placed_.push_back(index);
  ++coming_;
  std::erase_if(vacated_, [](const GpuPoint& point) { return is_past(point); });
  fills.push_back({index, vacated_});
}

bool Streamer::place(int index, bool for_now, std::vector<Fill>& fills) {
  Weight& weight = weights_[index];
  const Bytes size = slot_size(weight);
  if (size > arena_.size()) return false;
  std::optional<Bytes> slot = arena_.allocate(size);
  while (!slot && evict_one(for_now)) slot = arena_.allocate(size);
  if (!slot) return false;
  weight.slot = *slot;
  coming(index, slab_->data() + *slot + aligned_memory(lane_->slack()), fills);
  return true;
}

void Streamer::place_outside(int index, std::vector<Fill>& fills) {
  Weight& weight = weights_[index];
  const Bytes size = slot_size(weight);
  try {
    weight.extra =
        std::make_unique<Slab>(lane_->device(), size, ledger_.reserve(Tag::kSlots, size));
  } catch (Error& error) {
    error.add_context(fmt::format("weight '{}', which the slots have no room for", weight.name));
    throw;
  }
  ++counts_.unplanned;
  unplanned_ += size;
  counts_.unplanned_peak = std::max(counts_.unplanned_peak, unplanned_);
  coming(index, weight.extra->data() + aligned_memory(lane_->slack()), fills);
}

// Finds room for all that are away, or for none.
bool Streamer::place_all(std::span<const int> weights, bool outside, std::vector<Fill>& fills) {
  const std::size_t before = fills.size();
  for (const int index : weights) {
    Weight& weight = weights_[index];
    // Another try, unless someone else has yet to see that it failed.
    if (weight.state == State::kFailed && weight.leases == 1) vacate(index);
    if (weight.state != State::kAway || place(index, true, fills)) continue;
    if (outside) {
      place_outside(index, fills);
      continue;
    }
    for (std::size_t i = before; i < fills.size(); ++i) {
      --coming_;
      vacate(fills[i].weight);
    }
    fills.resize(before);
    return false;
  }
  return true;
}

Bytes Streamer::slots_for(std::span<const int> weights) const {
  Bytes size = 0;
  for (const int index : weights) size += slot_size(weights_[index]);
  return size;
}

void Streamer::place_or_wait(std::unique_lock<std::mutex>& lock, std::span<const int> weights,
                             std::vector<Fill>& fills) {
  const auto hold = [&](int change) {
    for (const int index : weights) {
      int& leases = weights_[index].leases;
      leased_ += change > 0 ? leases == 0 : -(leases == 1);
      leases += change;
    }
  };
  for (;;) {
    take_slots();
    hold(1);  // what is there stays
    if (place_all(weights, false, fills)) return;
    hold(-1);
    // Others give room when their op ends; nobody keeps a lease while waiting here.
    if (leased_ > 0 || coming_ > 0) {
      changed_.wait(lock);
      continue;
    }
    // What is there may lie so that no gap is large enough.
    if (placed_.empty() || slots_for(weights) > arena_.size()) break;
    while (!placed_.empty()) vacate(placed_.back());
  }
  hold(1);
  try {
    place_all(weights, true, fills);
  } catch (...) {
    for (const Fill& fill : fills) {
      --coming_;
      vacate(fill.weight);
    }
    hold(-1);
    throw;
  }
}

void Streamer::note_use(Place& at, int weight) {
  const int whole = weights_[weight].whole;
  order_.use(at.position, whole);
  Weight& asked = weights_[whole];
  if (asked.part < 0) return;
  if (weight != whole) {
    asked.parted = at.in_parts = true;
  } else if (asked.parted) {
    at.in_parts = false;
  } else {
    asked.whole_only = at.in_parts;  // a table, say, of which rows are looked up
  }
}

// The weight that is expected next.
int Streamer::step(Place& at) const {
  at.position = order_.next(at.position);
  const Weight& whole = weights_[at.position.now];
  const bool by_part = at.in_parts && whole.part >= 0 && !whole.whole_only;
  return by_part ? whole.part : at.position.now;
}

// Follows the expected order as far as the slots reach, and tells where that is if not all fit.
std::optional<Streamer::Place> Streamer::prefetch(Place at, std::vector<Fill>& fills) {
  ++round_;
  Bytes window = 0;
  for (const int index : placed_) {
    if (weights_[index].leases > 0 && !weights_[index].extra) window += slot_size(weights_[index]);
  }
  const int steps = static_cast<int>(weights_.size()) * 2;
  for (int rank = 0; rank < steps; ++rank) {
    const Place before = at;
    const int index = step(at);
    Weight& weight = weights_[index];
    if (weight.wanted == round_ || weight.leases > 0 || weight.dropped) continue;
    window += slot_size(weight);
    if (window > arena_.size()) return before;
    weight.wanted = round_;
    weight.rank = rank;
    if (weight.state == State::kAway && !place(index, false, fills)) return before;
  }
  return std::nullopt;
}

// What the lane is to hear of, if it is to hear anything: weights in files that have no slot yet,
// as far as the order is known.
std::optional<std::vector<Home>> Streamer::expected_after(const std::optional<Place>& slots_end) {
  // Threads that take turns would each have forgotten what was read for the others.
  const std::thread::id self = std::this_thread::get_id();
  const bool another = std::exchange(last_, self) != self;
  const std::size_t reach = lane_->reach();
  if (reach == 0 || another || leaving_) return std::nullopt;
  std::vector<Home> homes;
  if (!slots_end) return homes;
  Place at = *slots_end;
  for (std::size_t i = 0; i < weights_.size() && homes.size() < reach; ++i) {
    if (!order_.knows_next(at.position)) break;
    const Weight& weight = weights_[step(at)];
    if (weight.state != State::kAway || weight.dropped || weight.home.host != nullptr) continue;
    homes.push_back(weight.home);
  }
  return homes;
}

void Streamer::start(const std::vector<Fill>& fills) {
  for (const Fill& fill : fills) {
    Home home;
    std::byte* to = nullptr;
    {
      const std::lock_guard lock(mutex_);
      home = weights_[fill.weight].home;
      to = weights_[fill.weight].data;
    }
    lane_->fill(home, to, fill.after,
                [this, weight = fill.weight](std::exception_ptr error, GpuPoint ready) {
                  arrived(weight, std::move(error), std::move(ready));
                });
  }
}

void Streamer::arrived(int index, std::exception_ptr error, GpuPoint ready) {
  std::optional<Error> failure = as_error(std::move(error));
  const std::lock_guard lock(mutex_);
  Weight& weight = weights_[index];
  weight.state = failure ? State::kFailed : State::kHere;
  weight.failure = std::move(failure);
  weight.ready = std::move(ready);
  if (weight.state == State::kHere) counts_.bytes += weight.home.size;
  --coming_;
  changed_.notify_all();  // under the lock: the destructor waits for the last of these
}

void Streamer::give_up(std::unique_lock<std::mutex>& lock, std::span<const int> weights) {
  for (const int index : weights) {
    if (--weights_[index].leases == 0) --leased_;
  }
  changed_.notify_all();
  if (leaving_) leave_unless_leased(lock);
}

// Until it is known of all weights whether they have come.
void Streamer::fetch(std::unique_lock<std::mutex>& lock, std::span<const int> weights,
                     const std::vector<Fill>& fills,
                     const std::optional<std::vector<Home>>& ahead) {
  if (!fills.empty() || ahead) {
    lock.unlock();
    start(fills);
    if (ahead) lane_->expect(*ahead);
    lock.lock();
  }
  const auto all_told = [&] {
    return std::none_of(weights.begin(), weights.end(),
                        [&](int index) { return weights_[index].state == State::kComing; });
  };
  if (all_told()) return;
  const auto begin = std::chrono::steady_clock::now();
  changed_.wait(lock, all_told);
  ++counts_.waits;
  counts_.wait_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// To where they were to come, unless someone else has yet to see that it failed.
void Streamer::try_again(std::span<const int> weights, std::vector<Fill>& fills) {
  fills.clear();
  for (const int index : weights) {
    Weight& weight = weights_[index];
    if (weight.state != State::kFailed || weight.leases > 1) continue;
    weight.state = State::kComing;
    weight.failure.reset();
    ++coming_;
    fills.push_back({index, vacated_});
  }
}

void Streamer::lease(std::span<const int> weights, std::vector<std::byte*>& data) {
  std::vector<Fill> fills;
  std::vector<int> early;  // on their way before they were asked for
  std::unique_lock lock(mutex_);
  Place& at = places_[std::this_thread::get_id()];
  for (const int index : weights) {
    note_use(at, index);
    ++counts_.leases;
    if (weights_[index].state == State::kHere) ++counts_.hits;
    if (weights_[index].state == State::kComing) early.push_back(index);
  }
  const Place here = at;
  place_or_wait(lock, weights, fills);
  const std::optional<Place> slots_end = prefetch(here, fills);
  fetch(lock, weights, fills, expected_after(slots_end));
  if (!early.empty()) {  // what made a read fail that began earlier may be over
    try_again(early, fills);
    fetch(lock, weights, fills);
  }
  for (const int index : weights) {
    if (weights_[index].state != State::kFailed) continue;
    Error failure = *weights_[index].failure;
    failure.add_context(fmt::format("weight '{}'", weights_[index].name));
    give_up(lock, weights);
    throw Error(failure);
  }
  data.clear();
  for (const int index : weights) data.push_back(weights_[index].data);
  if (device().is_cpu()) return;
  std::vector<GpuPoint> ready;
  for (const int index : weights) ready.push_back(weights_[index].ready);
  lock.unlock();
  try {
    for (const GpuPoint& point : ready) lane_->wait(point);
  } catch (...) {
    lock.lock();
    give_up(lock, weights);
    throw;
  }
}

void Streamer::release(std::span<const int> weights) {
  const GpuPoint used = lane_->used();
  std::unique_lock lock(mutex_);
  if (used.event()) {
    for (const int index : weights) {
      std::vector<GpuPoint>& points = weights_[index].used;
      if (points.size() > 8) std::erase_if(points, [](const GpuPoint& p) { return is_past(p); });
      points.push_back(used);
    }
  }
  give_up(lock, weights);
}

}  // namespace haul::runtime
