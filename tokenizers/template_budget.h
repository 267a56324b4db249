#pragma once

// What one render may use. A template is foreign code: each step and each byte that it makes is
// counted here, and the count never goes back, so memory in use stays below it too.

#include <cstddef>

namespace haul::tokenizers::jinja {

class Budget {
 public:
  static constexpr std::size_t kSteps = 10'000'000;
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  static constexpr int kDepth = 800;
  static constexpr int kValueDepth = 400;
  static constexpr std::size_t kLongestRange = 100'000;

  // `input` bytes of context; each of them allows for more text to be made.
  explicit Budget(std::size_t input) : bytes_(kBytes + 64 * input) {}

  // Both throw Error(kResource) when nothing is left.
  void step(std::size_t count = 1);
  void allocate(std::size_t bytes);

  // One level of evaluation. Throws Error(kResource) on the one too many.
  class Level {
   public:
    explicit Level(Budget& budget);
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  std::size_t steps_ = kSteps;
  std::size_t bytes_;
  int depth_ = 0;
};

}  // namespace haul::tokenizers::jinja
