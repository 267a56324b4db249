#include "haul/device_map.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "haul/error.h"
#include "haul/profile.h"

// By the first byte: a device map's file, budgets, or a machine's profile.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 3 == 0) {
      haul::clean_device_map(haul::read_device_map(text, "map.json"));
    } else if (data[0] % 3 == 1) {
      haul::parse_max_memory(text);
    } else {
      const haul::Profile profile = haul::read_profile(text, "profile.json");
      if (!(haul::read_profile(haul::write_profile(profile), "again") == profile)) __builtin_trap();
    }
  } catch (const haul::Error&) {
  }
  return 0;
}
