#include "core/launch/launch_config.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/launch/config_value.h"
#include "haul/error.h"

namespace {

// What is read can be written and read again to the same text.
void check_tree(std::string_view text) {
  const std::string written = haul::core::write_yaml(haul::core::parse_yaml(text, "f"));
  if (haul::core::write_yaml(haul::core::parse_yaml(written, "again")) != written) std::abort();
}

void check_config(std::string_view text, bool json) {
  const auto config = haul::core::parse_launch_config(text, json, "f");
  const std::string written = haul::core::write_launch_config(config, json);
  const auto again = haul::core::parse_launch_config(written, json, "again");
  if (haul::core::write_launch_config(again, json) != written) std::abort();
}

}  // namespace

// A launch config in YAML and in JSON. The tree of a document may be a lone scalar, which has no
// text of its own: only maps and lists are written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool is_tree = false;
  try {
    is_tree = haul::core::parse_yaml(text, "f").kind != haul::core::ConfigValue::Kind::kScalar;
  } catch (const haul::Error&) {
  }
  if (is_tree) check_tree(text);
  for (const bool json : {false, true}) {
    bool good = false;
    try {
      haul::core::parse_launch_config(text, json, "f");
      good = true;
    } catch (const haul::Error&) {
    }
    if (good) check_config(text, json);
  }
  return 0;
}
