#pragma once

// How many bits each module and tensor of a description takes, by Accelerate's rules: a tied tensor
// counts once, under the first of its names in registration order; buffers count whether or not
// they are saved; a bool counts one bit. Sizes are whole bits, so nothing is rounded. Pure, any
// thread; building the table is linear in the number of modules and tensors.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/dtype.h"

namespace haul {

using Bits = std::uint64_t;

// Bytes as Accelerate has them, with the fraction that bools and 4-bit types can leave.
inline double exact_bytes(Bits bits) {
  return static_cast<double>(bits) / 8;
}
// Whole bytes, rounded up.
inline Bytes whole_bytes(Bits bits) {
  return bits / 8 + (bits % 8 != 0 ? 1 : 0);
}

// Bits that one element counts: 1 for a bool, else its storage.
int counted_bits(Dtype dtype);
// The same for a name: torch's spelling, or "int2", "int4", "fp8". Nothing when it is unknown.
std::optional<int> counted_bits(std::string_view dtype_name);

struct SizeOptions {
  // Bits of the dtype that the model is converted to. Integers and bools are never converted, and
  // asking for a wider dtype than a tensor has never makes it larger.
  std::optional<int> dtype_bits = std::nullopt;
  // Bits an element by full tensor name; these win over everything else.
  std::unordered_map<std::string, int> special_bits = {};
  bool buffers_only = false;
};

// The sizes of a description as one flat list in depth-first order: a module is followed by its
// parameters, its buffers and then its child modules. Points into the description, which must
// outlive it and stay as it is.
class ModuleSizes {
 public:
  using Index = std::uint32_t;
  static constexpr Index kRoot = 0;

  enum class Kind : std::uint8_t { kModule, kParameter, kBuffer };

  struct Node {
    const std::string* segment;  // last part of the name
    const ModuleSpec* module;    // null for a tensor
    const Shape* shape;          // null for a module
    std::uint64_t elements;      // of a tensor
    Bits bits;                   // at and below this node; 0 for a tensor counted elsewhere
    Index parent;                // of the root: itself
    Index end;                   // one past the last node below this one
    Kind kind;
    Dtype dtype;     // of a tensor, its own
    bool divisible;  // a module with modules below it
  };

  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& operator[](Index index) const { return nodes_[index]; }
  Bits total() const { return nodes_[kRoot].bits; }

  // Children are first_child(i), then next(child) until it equals nodes()[i].end.
  static Index first_child(Index index) { return index + 1; }
  Index next(Index index) const { return nodes_[index].end; }

  // The full dotted name; empty for the root.
  std::string name(Index index) const;
  // Walks the path; each step looks through the siblings.
  std::optional<Index> find(std::string_view full_name) const;

 private:
  friend class ModuleSizesBuilder;
  std::vector<Node> nodes_;
};

// Throws Error(kUnsupported) when the sizes do not fit in 63 bits.
ModuleSizes compute_module_sizes(const Description& description, const SizeOptions& options = {});

struct LargestLayer {
  Bits bits = 0;
  std::vector<std::string> names;  // every layer of that size, in order
};

// A layer is a module without children, a module whose class is in `no_split`, or a tensor that
// stands in the queue itself. The queue's nodes are searched in the order given.
LargestLayer get_max_layer_size(const ModuleSizes& sizes, std::span<const ModuleSizes::Index> queue,
                                std::span<const std::string> no_split);

struct MaximumSizes {
  Bits total = 0;
  LargestLayer largest_layer;
};

// The whole model in its own dtypes, with the description's unsplittable classes.
MaximumSizes calculate_maximum_sizes(const Description& description);

}  // namespace haul
