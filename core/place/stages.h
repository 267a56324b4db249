#pragma once

// Blocks that are computed one after another, shared out to processes that each have a run of them.
// Pure, any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "haul/description.h"
#include "haul/profile.h"

namespace haul::core {

// A run of blocks.
struct Stage {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const Stage&) const = default;
};

// By block, the names of its tensors: those that it holds, and those that lie in no block and come
// behind it in the tree; before the first block, they are its own. Throws Error(kUsage) for a block
// that has no tensor, or is named twice.
std::vector<std::vector<std::string>> block_tensors(const Description& description,
                                                    const std::vector<std::string>& blocks);

// How long a pass of `tokens` takes in each block, by the planner's cost model on the CPU or on the
// first GPU.
std::vector<double> block_seconds(const Description& description,
                                  const std::vector<std::string>& blocks, const Profile& profile,
                                  bool on_gpu, std::int64_t tokens);

// Runs of blocks, none empty, of which the slowest is as fast as can be; the later stages then have
// as little as that allows. Throws Error(kUsage) for more stages than blocks.
std::vector<Stage> even_stages(const std::vector<double>& seconds, std::size_t stages);

// The stages that begin with these blocks; the first begins with the first block, named or not.
// Throws Error(kUsage) unless they make `stages` and are blocks in their order.
std::vector<Stage> named_stages(const std::vector<std::string>& blocks,
                                const std::vector<std::string>& split_points, std::size_t stages);

}  // namespace haul::core
