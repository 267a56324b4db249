// Whole safetensors files: whatever is accepted lies inside the file, each byte in one tensor, and
// is accepted again when its header is written anew.

#include "core/formats/safetensors.h"

#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/formats/safetensors_writer.h"
#include "haul/error.h"

namespace {

using haul::core::SafetensorsHeader;

void check(const SafetensorsHeader& header, std::size_t file_size) {
  haul::Bytes covered = 0;
  std::vector<haul::core::HeaderTensor> tensors;
  for (const auto& tensor : header.tensors) {
    if (tensor.offset > file_size || tensor.size > file_size - tensor.offset) std::abort();
    covered += tensor.size;
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const std::string prefix = haul::core::safetensors_prefix(tensors, header.metadata);
  const SafetensorsHeader again = haul::core::parse_safetensors_header(
      std::string_view(prefix).substr(8), prefix.size() + covered, "again");
  if (again.tensors.size() != tensors.size() || again.metadata != header.metadata) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  SafetensorsHeader header;
  try {
    header = haul::core::read_safetensors_header(std::as_bytes(std::span(data, size)), "input");
  } catch (const haul::Error&) {
    return 0;
  }
  check(header, size);
  return 0;
}
