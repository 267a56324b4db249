#include "runtime/dispatch/sender.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace haul::runtime {
namespace {

constexpr Bytes kLeastHalf = 64 * kKiB;
constexpr Bytes kMostHalf = 2 * kMiB;

}  // namespace

Sender::Sender(Reservation reservation, Bytes half)
    : slab_(c10::Device(c10::kCPU), 2 * half, std::move(reservation), true), size_(half) {
  halves_[0].data = slab_.data();
  halves_[1].data = slab_.data() + half;
}

Sender::~Sender() {
  for (const Half& half : halves_) settle(half.copied);
}

void Sender::begin(Lane& lane, std::byte* to) {
  lane_ = &lane;
  to_ = to;
  filled_ = 0;
}

void Sender::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == 0) wait_for(halves_[turn_].copied);
    const std::size_t count = std::min<std::size_t>(bytes.size(), size_ - filled_);
    std::memcpy(halves_[turn_].data + filled_, bytes.data(), count);
    bytes = bytes.subspan(count);
    filled_ += count;
    if (filled_ == size_) copy();
  }
}

void Sender::end() {
  if (filled_ > 0) copy();
  for (const Half& half : halves_) wait_for(half.copied);
}

void Sender::copy() {
  Half& half = halves_[turn_];
  std::exception_ptr failure;
  lane_->fill({half.data, 0, 0, filled_}, to_, {}, [&](std::exception_ptr error, GpuPoint point) {
    failure = std::move(error);
    half.copied = std::move(point);
  });
  if (failure) std::rethrow_exception(failure);
  to_ += filled_;
  filled_ = 0;
  turn_ = 1 - turn_;
}

std::vector<std::unique_ptr<Sender>> make_senders(Ledger* ram, Bytes largest, Bytes others,
                                                  std::size_t most) {
  const auto beside_others = [&]() -> std::optional<Bytes> {
    const auto left = ram->left();
    if (!left) return std::nullopt;
    return *left - std::min(*left, others);
  };
  Bytes half = std::clamp(largest, kLeastHalf, kMostHalf);
  if (const auto left = beside_others()) {
    half = std::clamp(*left / 4, kLeastHalf, half);
    most = std::clamp<std::size_t>(*left / (4 * half), 1, most);
  }
  std::vector<std::unique_ptr<Sender>> senders;
  for (std::size_t i = 0; i < most; ++i) {
    const Bytes counted = std::min(2 * half, beside_others().value_or(2 * half));
    senders.push_back(std::make_unique<Sender>(ram->reserve(Tag::kStaging, counted), half));
  }
  return senders;
}

}  // namespace haul::runtime
