#pragma once

// Writes one safetensors file, front to back, without holding a tensor. The file appears under its
// name when it is committed and never before. One thread.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/formats/model_files.h"
#include "core/formats/safetensors.h"
#include "haul/bytes.h"

namespace haul::core {

// Bytes of all tensors' data. Throws Error(kUnsupported) when they are not whole or over 2^64.
Bytes safetensors_size(const std::vector<HeaderTensor>& tensors);
Bytes safetensors_size(const HeaderTensor& tensor);

// The header with its length in front, padded with spaces so that the data starts at a multiple of
// 512. Throws Error(kUnsupported) for names that the format cannot hold (twice the same, the
// reserved
// __metadata__, not UTF-8), for tensors that fill no whole bytes and for a header over 100 MB.
std::string safetensors_prefix(const std::vector<HeaderTensor>& tensors,
                               const SafetensorsMetadata& metadata);

class SafetensorsWriter {
 public:
  // Writes the header; the tensors' bytes are then due in this order. Tensors are aligned when
  // wider elements come first.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<HeaderTensor>& tensors,
                    const SafetensorsMetadata& metadata);

  // The next bytes, in pieces of any size.
  void write(std::span<const std::byte> bytes);
  // Of the file, until it is committed.
  int descriptor() const { return file_.descriptor(); }
  // Throws Error(kInternal) unless exactly the bytes that the header announces were written.
  void commit();

 private:
  AtomicFile file_;
  std::string path_;
  Bytes due_ = 0;
};

}  // namespace haul::core
