#pragma once

#include <optional>
#include <utility>

#include "core/place/world.h"

namespace haul::core {

// Differences below this share of a time are rounding.
inline constexpr double kTimeRounding = 1e-9;

// Whether a time is the least there can be.
inline bool meets(double seconds, double bound) {
  return seconds <= bound * (1 + kTimeRounding);
}

// The fastest of the choices offered; of equally fast ones the one with the fewest hops.
class Best {
 public:
  // No choice takes less than `bound` seconds.
  Best(const World& world, double bound) : world_(world), bound_(bound) {}

  Timing offer(Choices choices) {
    Timing timing = predict(world_, choices);
    if (timing.fits && better(timing)) {
      choices_ = std::move(choices);
      seconds_ = timing.seconds;
      hops_ = timing.hops;
      reads_disk_ = timing.disk_used > 0;
    }
    return timing;
  }

  // Nothing can be faster than what was offered.
  bool proven() const { return choices_ && meets(seconds_, bound_); }
  const std::optional<Choices>& choices() const { return choices_; }
  bool reads_disk() const { return reads_disk_; }

 private:
  bool better(const Timing& timing) const {
    if (!choices_ || timing.seconds < seconds_ * (1 - kTimeRounding)) return true;
    return timing.seconds <= seconds_ * (1 + kTimeRounding) && timing.hops < hops_;
  }

  const World& world_;
  const double bound_;
  std::optional<Choices> choices_;
  double seconds_ = 0;
  int hops_ = 0;
  bool reads_disk_ = false;
};

}  // namespace haul::core
