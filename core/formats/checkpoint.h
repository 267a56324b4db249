#pragma once

// A checkpoint of any format as one list of tensors: safetensors (one file or shards), torch zip
// files, GGUF, an offload folder. Opening reads headers only; the data is mapped and stays where
// it is. Immutable after opening, so any thread may read. Errors name the file and the tensor.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/file.h"
#include "core/base/json.h"
#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/dtype.h"

namespace haul::core {

enum class CheckpointFormat { kSafetensors, kTorchZip, kGguf, kOffloadFolder };

// How the bytes of a tensor are coded. kPlain: elements of its dtype; the others are GGUF's
// quantised blocks, which dequantise to F32.
enum class Coding : std::uint8_t {
  kPlain,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

struct StoredTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;  // of the values; F32 for quantised codings
  Shape shape;
  std::vector<std::int64_t> strides;  // in elements, for torch views; empty: contiguous
  std::uint32_t file = 0;             // index into Checkpoint::files
  Bytes offset = 0;                   // of the first byte in the file
  Bytes size = 0;                     // bytes the tensor spans in the file
  Coding coding = Coding::kPlain;
};

class Checkpoint {
 public:
  // A file (.safetensors, .bin/.pt/.pth, .gguf, an .index.json) or a folder, resolved as Accelerate
  // resolves one, except that safetensors are preferred to pickles.
  static Checkpoint open(const std::filesystem::path& path);

  CheckpointFormat format() const { return format_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in file order
  const StoredTensor* find(std::string_view name) const;
  const std::vector<MappedFile>& files() const { return files_; }
  // The tensor's bytes in the map: exactly StoredTensor::size of them.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  // Remarks for the user: "both model.safetensors and pytorch_model.bin are there; …".
  const std::vector<std::string>& notes() const { return notes_; }
  // GGUF's key-value metadata or safetensors' __metadata__; null otherwise.
  const Json& metadata() const { return metadata_; }
  // Bytes of all tensors in the files, each storage counted once.
  Bytes stored_bytes() const;

 private:
  friend class CheckpointBuilder;
  CheckpointFormat format_ = CheckpointFormat::kSafetensors;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::uint32_t> by_name_;  // views into tensors_
  std::vector<MappedFile> files_;
  std::vector<std::string> notes_;
  Json metadata_;
};

}  // namespace haul::core
