#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "haul/description.h"
#include "haul/error.h"

// A tree file; one that is read can be written and read again to the same text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string written = haul::write_tree(haul::read_tree(text, "tree.json"));
    if (haul::write_tree(haul::read_tree(written, "again")) != written) std::abort();
  } catch (const haul::Error&) {
  }
  return 0;
}
