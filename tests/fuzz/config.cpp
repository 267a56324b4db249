#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/describe/describe.h"
#include "haul/error.h"

// A config.json to a description and its tree file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    haul::core::DescribeOptions options;
    options.base_model = size % 2 == 1;
    options.dtype = haul::core::WeightDtype::kStored;
    haul::core::describe_config(haul::core::parse_json(text, "config.json"), "config.json",
                                options);
  } catch (const haul::Error&) {
  }
  return 0;
}
