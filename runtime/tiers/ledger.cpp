#include "runtime/tiers/ledger.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::runtime {

struct Ledger::State {
  std::string tier;
  std::optional<Bytes> budget;
  mutable std::mutex mutex;
  std::array<Bytes, kTagCount> by_tag{};
  Bytes used = 0;
  Bytes peak = 0;

  Bytes left() const { return *budget - std::min(*budget, used); }
};

std::string_view name(Tag tag) {
  constexpr std::array<std::string_view, kTagCount> kNames = {
      "weights", "slots", "staging", "changed weights", "KV cache", "activations"};
  return kNames[static_cast<std::size_t>(tag)];
}

Ledger::Ledger(std::string tier, std::optional<Bytes> budget) : state_(std::make_shared<State>()) {
  state_->tier = std::move(tier);
  state_->budget = budget;
}

Reservation Ledger::reserve(Tag tag, Bytes bytes) {
  const std::lock_guard lock(state_->mutex);
  if (state_->budget && bytes > state_->left()) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: {} for {} do not fit: {} of {} are taken", state_->tier,
                            format_bytes(bytes), name(tag), format_bytes(state_->used),
                            format_bytes(*state_->budget)));
  }
  state_->used += bytes;
  state_->by_tag[static_cast<std::size_t>(tag)] += bytes;
  state_->peak = std::max(state_->peak, state_->used);
  Reservation reservation;
  reservation.state_ = state_;
  reservation.tag_ = tag;
  reservation.bytes_ = bytes;
  return reservation;
}

const std::string& Ledger::tier() const {
  return state_->tier;
}

Bytes Ledger::used() const {
  const std::lock_guard lock(state_->mutex);
  return state_->used;
}

Bytes Ledger::used(Tag tag) const {
  const std::lock_guard lock(state_->mutex);
  return state_->by_tag[static_cast<std::size_t>(tag)];
}

Bytes Ledger::peak() const {
  const std::lock_guard lock(state_->mutex);
  return state_->peak;
}

std::optional<Bytes> Ledger::left() const {
  const std::lock_guard lock(state_->mutex);
  return state_->budget ? std::optional(state_->left()) : std::nullopt;
}

Reservation::Reservation(Reservation&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      tag_(other.tag_),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(tag_, other.tag_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Reservation::~Reservation() {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->used -= bytes_;
  state_->by_tag[static_cast<std::size_t>(tag_)] -= bytes_;
}

}  // namespace haul::runtime
