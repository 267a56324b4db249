#pragma once

// Memory whose pages someone brought in early, for slabs of host memory, which take it before they
// ask the system for fresh pages. Any thread.

#include <cstddef>

#include "haul/bytes.h"

namespace haul::runtime {

// An anonymous mapping from a huge page's beginning to another's, `brought` bytes of which are
// there. What was offered before goes.
void offer_memory(std::byte* memory, Bytes size, Bytes brought);

// The next of it, zeros, from a huge page's beginning: the caller unmaps it. Null: so much is not
// left, or it is too little to be worth a huge page.
std::byte* take_offered(Bytes size);

// What is there and nobody has taken.
Bytes offered_now();

// Nobody will take more.
void drop_offered();

}  // namespace haul::runtime
