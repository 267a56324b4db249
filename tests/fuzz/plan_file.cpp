#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/place/plan_checksum.h"
#include "haul/error.h"
#include "haul/plan.h"

// A plan file with a right checksum: what is read is written and read again the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    haul::core::Json json = haul::core::parse_json(text, "plan.json");
    if (json.is_object()) {
      json.erase("checksum");
      json["checksum"] = haul::core::plan_checksum(json);
    }
    const haul::Plan plan = haul::read_plan(json.dump(), "plan.json");
    if (!(haul::read_plan(haul::write_plan(plan), "again") == plan)) __builtin_trap();
  } catch (const haul::Error&) {
  }
  return 0;
}
