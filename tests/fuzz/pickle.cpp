// Pickles as torch checkpoints hold them, beside three storages of 24, 8 and 0 bytes.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "core/formats/torch_zip.h"
#include "haul/error.h"
#include "tests/support/zip_builder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  haul::test::ZipBuilder builder;
  builder.parts = {{"a/data.pkl", std::string(reinterpret_cast<const char*>(data), size)},
                   {"a/data/0", std::string(24, '0')},
                   {"a/data/1", std::string(8, '1')},
                   {"a/data/2", ""}};
  const std::string archive = builder.build();
  try {
    const auto bytes = std::as_bytes(std::span(archive.data(), archive.size()));
    for (const auto& tensor : haul::core::read_torch_zip(bytes).tensors) {
      if (tensor.offset > bytes.size() || tensor.size > bytes.size() - tensor.offset) std::abort();
    }
  } catch (const haul::Error&) {
  }
  return 0;
}
