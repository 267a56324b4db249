#pragma once

// GGUF files, versions 2 and 3, little-endian: key-value metadata, then tensor infos, then aligned
// data. Parsing reads the header alone and copies only names and shapes; strings and arrays are
// views into the bytes that were parsed, so a vocabulary of any size costs nothing until it is
// asked for. Everything is immutable after parsing: any thread may read.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/formats/checkpoint.h"
#include "core/formats/gguf_value.h"

namespace haul::core {

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

struct GgufHeader {
  std::uint32_t version = 3;
  Bytes alignment = 32;
  Bytes data_offset = 0;
  std::vector<GgufEntry> metadata;    // in file order, keys unique
  std::vector<StoredTensor> tensors;  // in file order; offsets from the start of the file

  const GgufValue* find(std::string_view key) const;
  // Scalars, strings that are UTF-8, and arrays of at most 64 of these, in file order.
  Json json() const;
};

// Parses and checks everything but the tensors' data. `bytes` must outlive the result; `source`
// names the file in messages. Throws Error(kCorrupt) for broken files and Error(kUnsupported) for
// old versions, big-endian files, nested arrays and tensor types that haul does not read.
GgufHeader parse_gguf(std::span<const std::byte> bytes, std::string_view source);

// A GGUF file opened by itself, for those who need more of it than its tensors.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  const GgufHeader& header() const { return header_; }
  const std::filesystem::path& path() const { return file_.path(); }
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;

 private:
  MappedFile file_;
  GgufHeader header_;
};

}  // namespace haul::core
