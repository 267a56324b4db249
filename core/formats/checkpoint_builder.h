#pragma once

// How the formats make a Checkpoint: each has a function that maps a file and adds its tensors.
// A builder is used by one thread.

#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/checkpoint.h"

namespace haul::core {

class CheckpointBuilder {
 public:
  explicit CheckpointBuilder(CheckpointFormat format);

  // Maps a file and gives its index for StoredTensor::file. Throws Error for one that cannot be
  // read and for a Git LFS pointer that stands in a weight file's place.
  std::uint32_t add_file(const std::filesystem::path& path);
  // The reference is good until the next add_file, the mapped bytes as long as the checkpoint.
  const MappedFile& file(std::uint32_t index) const { return checkpoint_.files_[index]; }

  // Throws Error(kCorrupt), with the file and the tensor's name, unless the bytes lie inside the
  // file and, for plain coding, `size` is what dtype, shape and strides need.
  void add(StoredTensor tensor);
  const std::vector<StoredTensor>& tensors() const { return checkpoint_.tensors_; }

  void note(std::string text);
  // The first metadata that is set stays.
  void set_metadata(Json metadata);

  // Throws Error(kCorrupt) when two tensors have one name, naming both files.
  Checkpoint build() &&;

 private:
  Checkpoint checkpoint_;
};

// Each adds all tensors of one file, in the file's order. A sharded checkpoint is several calls on
// one builder.
void add_safetensors(CheckpointBuilder& builder, const std::filesystem::path& path);
void add_torch_zip(CheckpointBuilder& builder, const std::filesystem::path& path);
// A GGUF model in several files is added whole, by its first.
void add_gguf(CheckpointBuilder& builder, const std::filesystem::path& path);

}  // namespace haul::core
