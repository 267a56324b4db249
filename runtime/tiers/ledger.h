#pragma once

// The account of one tier: what is reserved in it, for which reason, and the most there ever was.
// A reservation means that bytes are budgeted; it is move-only and gives them back when it dies.
// Any thread.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "haul/bytes.h"

namespace haul::runtime {

enum class Tag : std::uint8_t {
  kWeights,  // that stay
  kSlots,    // for weights that come and go
  kStaging,  // on the way from a file to a GPU
  kChanged,  // weights that were written to after they were loaded
  kKv,
  kActivations,  // set aside for what ops allocate by themselves, logits and workspace with it
};
inline constexpr int kTagCount = 6;
std::string_view name(Tag tag);

class Reservation;

class Ledger {
 public:
  // `tier` is for people: "RAM", "GPU 0". No budget: no limit.
  Ledger(std::string tier, std::optional<Bytes> budget);

  // Throws Error(kResource) that says what is asked for and what is left.
  Reservation reserve(Tag tag, Bytes bytes);

  const std::string& tier() const;
  Bytes used() const;
  Bytes used(Tag tag) const;
  Bytes peak() const;
  // Of the budget, where there is one.
  std::optional<Bytes> left() const;

 private:
  friend class Reservation;
  struct State;
  std::shared_ptr<State> state_;
};

class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  Bytes bytes() const { return bytes_; }

 private:
  friend class Ledger;
  std::shared_ptr<Ledger::State> state_;
  Tag tag_ = Tag::kWeights;
  Bytes bytes_ = 0;
};

}  // namespace haul::runtime
