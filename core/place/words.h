#pragma once

// How plans speak of devices, times and rates.

#include <string>
#include <vector>

#include "haul/plan.h"

namespace haul::core {

std::string device_words(Device device);    // "GPU 0", "RAM", "disk"
std::string seconds_words(double seconds);  // "12.30 ms"
std::string rate_words(double per_second);  // "3.25", "170"

// Consecutive units that run on one device, by where their weights lie.
struct PlanRun {
  struct Part {
    Device lies;
    bool looked_up = false;  // rows of it
    std::int64_t count = 0;
    Bytes weights = 0;
  };
  std::string first;
  std::string last;
  Device runs_on;
  std::vector<Part> parts;

  std::int64_t count() const;
};
std::vector<PlanRun> runs_of(const Plan& plan);

}  // namespace haul::core
