#pragma once

// What a checkpoint changes in a description made from the config: dtypes, and ties that it breaks.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/checkpoint.h"
#include "core/formats/model_files.h"
#include "haul/description.h"

namespace haul::core {

// The tensors of a model's checkpoint: the local one, opened, or the headers that were fetched.
class StoredTensors {
 public:
  // Borrows the files' remote tensors. Throws what Checkpoint::open throws.
  explicit StoredTensors(const ModelFiles& files);

  // As Transformers names and shapes them, also those of a GGUF file that haul can map.
  std::span<const HeaderTensor> headers() const;
  // What a GGUF file's metadata says in the keys of a config.json; null for any other checkpoint.
  const Json& config() const { return config_; }
  // Whether two tensors, by index, hold the same values: one storage, or equal bytes. Tensors that
  // are not here and those of a GGUF file, which holds none twice, count as different.
  bool same_values(std::size_t a, std::size_t b) const;
  std::vector<std::string> notes() const;

 private:
  std::optional<Checkpoint> checkpoint_;
  std::vector<HeaderTensor> opened_;
  std::span<const HeaderTensor> remote_;
  Json config_;
};

// Takes out of each tied group the names that the checkpoint holds with values of their own. Names
// are looked up as they are, and with the bare model's prefix added or taken away.
void untie_stored(const StoredTensors& tensors, std::string_view base_prefix,
                  Description* description);

// Gives each weight the dtype that the checkpoint holds it in.
void set_stored_dtypes(const StoredTensors& tensors, std::string_view base_prefix,
                       Description* description);

// Gives every float weight and persistent float buffer this dtype.
void set_dtype(Dtype dtype, ModuleSpec* module);

}  // namespace haul::core
