// Whole torch checkpoints: the zip archive, its pickle, its tensors.

#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/formats/torch_zip.h"
#include "haul/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto archive = std::as_bytes(std::span(data, size));
    for (const auto& tensor : haul::core::read_torch_zip(archive).tensors) {
      if (tensor.offset > size || tensor.size > size - tensor.offset) std::abort();
    }
  } catch (const haul::Error&) {
  }
  return 0;
}
