#pragma once

// A model whose layers several processes share: each has some of the heads, a part of the MLP's
// inner width, and everything else whole. Pure functions.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "haul/bytes.h"
#include "haul/description.h"

namespace haul::core {

// One of the processes.
struct TensorPart {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

// The dimension along which a tensor is cut. It consists of `groups` equal pieces, of each of which
// a process has its part: queries, keys and values that lie in one tensor are three.
struct TensorCut {
  std::size_t dim = 0;
  std::int64_t groups = 1;
};

struct CutModel {
  Description description;                // of one part: that of a smaller model
  std::map<std::string, TensorCut> cuts;  // of the tensors that are cut, by full name
  // The modules that have a part of their inputs alone: what those of all processes give is to be
  // added up, and their bias once.
  std::vector<std::string> summed;
};

// The parts of all processes are of the same shapes. Throws Error(kUnsupported) for an architecture
// that cannot be cut and Error(kUsage) for heads or a width that `count` does not divide.
CutModel cut_model(const Description& description, std::int64_t count);

// A tensor as it lies, in C order, is so many equal runs, of each of which a process has a share
// without a gap. One run: its part is in one piece, whole rows of the tensor.
std::uint64_t runs_of(const Shape& whole, const TensorCut& cut);

// Passes on the share of one process out of each run of bytes that come piece after piece.
class PartSink {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  // `run` is the length of a run in bytes, a multiple of `part.count`.
  PartSink(Bytes run, TensorPart part, Sink sink);
  void operator()(std::span<const std::byte> piece);

 private:
  Bytes run_;
  Bytes begin_;
  Bytes end_;
  Bytes at_ = 0;  // within the run
  Sink sink_;
};

}  // namespace haul::core
