#pragma once

// How plans speak of devices, times and rates.

#include <string>

#include "haul/device_map.h"

namespace haul::core {

std::string device_words(Device device);    // "GPU 0", "RAM", "disk"
std::string seconds_words(double seconds);  // "12.30 ms"
std::string rate_words(double per_second);  // "3.25", "170"

}  // namespace haul::core
