#pragma once

// The tensors of a checkpoint and, where it is a GGUF file of a family that haul maps, under the
// names and in the layout that Transformers has for them.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/describe/cut.h"
#include "core/describe/gguf_model.h"
#include "core/formats/checkpoint.h"
#include "core/formats/model_files.h"
#include "haul/dtype.h"

namespace haul::core {

class TransformersTensors {
 public:
  // Castable tensors become `dtype`, where there is one. The checkpoint must outlive this.
  TransformersTensors(const Checkpoint& checkpoint, std::optional<Dtype> dtype);

  const std::vector<HeaderTensor>& headers() const { return headers_; }
  // The config that a GGUF file's metadata makes; nothing for other formats.
  const std::optional<Json>& config() const { return config_; }
  // A remark for the user; empty when there is none.
  const std::string& note() const { return note_; }

  // Where the elements of a tensor lie in a file just as stream() would give them, contiguous and
  // not coded, though perhaps of another dtype than the header's, of which stream() casts them.
  // Nothing where more than that has to be done.
  const StoredTensor* as_it_lies(std::size_t index) const;

  // Calls `sink` with one piece after another of a tensor. Takes a few MB, or the size of a head
  // where the rows of heads change places, and of the tensor where others do.
  void stream(std::size_t index, const std::function<void(std::span<const std::byte>)>& sink) const;

  // The part of a tensor that a process has. Reads no more than that where the part is of whole
  // rows that lie together in the file; else all of it, as reads_part_alone() tells.
  void stream_part(std::size_t index, const TensorCut& cut, TensorPart part,
                   const std::function<void(std::span<const std::byte>)>& sink) const;
  bool reads_part_alone(std::size_t index, const TensorCut& cut) const;

 private:
  void stream(const StoredTensor& stored, const GgufPlace& place, Dtype dtype,
              const std::function<void(std::span<const std::byte>)>& sink) const;
  void add(const StoredTensor& stored, GgufPlace place, std::optional<Dtype> dtype);

  const Checkpoint* checkpoint_;
  std::vector<HeaderTensor> headers_;
  std::vector<const StoredTensor*> stored_;  // of each header
  std::vector<GgufPlace> places_;            // likewise
  std::optional<Json> config_;
  std::string note_;
};

}  // namespace haul::core
