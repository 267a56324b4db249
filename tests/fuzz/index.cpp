// Indexes of shards and of offload folders: whatever is accepted names files that stay in the
// folder.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/formats/offload_folder.h"
#include "core/formats/shard_index.h"
#include "haul/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const haul::core::BigJson document(text, "input");
    if (haul::core::is_offload_index(document.root())) {
      for (const auto& entry : haul::core::read_offload_index(document.root(), "input")) {
        if (entry.safetensors_file.empty() && entry.name.find('/') != entry.name.npos) std::abort();
      }
    } else {
      const auto index = haul::core::read_shard_index(document.root(), "input");
      if (!std::is_sorted(index.files.begin(), index.files.end())) std::abort();
      for (const auto& file : index.files) {
        if (file.front() == '/' || file == ".." || file.starts_with("../")) std::abort();
      }
      for (const auto& entry : index.entries) {
        if (entry.file >= index.files.size()) std::abort();
      }
    }
  } catch (const haul::Error&) {
  }
  return 0;
}
