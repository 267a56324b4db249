#pragma once

// A GGUF checkpoint seen as the Transformers checkpoint that it was made from: its config, and for
// each tensor the name, the shape and the order of elements that it has there. Values after
// construction: any thread may read. Errors name the file and the key or the tensor.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/describe/gguf_family.h"
#include "core/formats/checkpoint.h"
#include "core/formats/model_files.h"

namespace haul::core {

// Where a tensor of a GGUF file belongs.
struct GgufPlace {
  std::string name;                       // in Transformers
  Shape shape;                            // likewise
  GgufLayout layout = GgufLayout::kSame;  // what restore_layout must undo
  std::int64_t heads = 0;                 // in the rows, for layouts that depend on them
};

class GgufModel {
 public:
  // Whether the file's architecture is one of those that haul maps.
  static bool knows(const Checkpoint& checkpoint);

  // REQUIRES: a checkpoint of format kGguf. Throws Error(kUnsupported) for an architecture that
  // haul does not map and Error(kCorrupt) for metadata that is missing or makes no sense.
  explicit GgufModel(const Checkpoint& checkpoint);

  // As config.json would have it: "architectures", "model_type" and the keys of the model's class.
  const Json& config() const { return facts_.config; }

  // Nothing for a tensor that is no weight of the model, such as a table of rotary frequencies.
  // Throws Error(kUnsupported) for a name that the architecture does not have and Error(kCorrupt)
  // for a shape that the layout does not allow.
  std::optional<GgufPlace> place(const StoredTensor& tensor) const;

 private:
  std::string source_;
  GgufFacts facts_;
};

// The tensors of the checkpoint as Transformers names and shapes them, in the file's order.
std::vector<HeaderTensor> transformers_tensors(const GgufModel& model,
                                               const Checkpoint& checkpoint);

// Brings the elements of a tensor, plain or dequantised, into the order that Transformers has:
// fills `to` with whole rows of the result, beginning at `first_row`. REQUIRES: `from` holds all
// elements of place.shape, `element` bytes each, and `to` no more rows than are left.
void restore_layout(const GgufPlace& place, std::size_t element, std::span<const std::byte> from,
                    std::span<std::byte> to, std::size_t first_row = 0);

}  // namespace haul::core
