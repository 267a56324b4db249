#pragma once

// Attention of one head over keys and values: scores, chances, and the mean of values by chance.
// Pure; float32 inside.

#include <cstddef>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace haul::kernels {

// The keys and values of `tokens` tokens, in rows of `size` that lie so many numbers apart.
template <typename T>
struct SeenAs {
  const T* keys;
  const T* values;
  std::size_t tokens;
  std::size_t size;
  std::size_t key_stride;
  std::size_t value_stride;
};
using Seen = SeenAs<float>;

// Heads of one token that look at the same keys.
struct OneToken {
  const float* queries;  // a row of `size` for each head, one after the other
  std::size_t heads;
  float scale;
  const float* bias;        // (tokens), added to the scores, or null
  std::size_t bias_stride;  // from head to head
};
// `room` is for heads * tokens numbers, `out` heads rows of `size`.
void look(const OneToken& token, const Seen& seen, float* room, float* out);
void look(const OneToken& token, const SeenAs<c10::BFloat16>& seen, float* room, float* out);
void look(const OneToken& token, const SeenAs<c10::Half>& seen, float* room, float* out);

// Tokens of one head, one after the other.
struct Tile {
  const float* queries;
  std::size_t query_stride;
  std::size_t count;  // of tokens, at most tile_size()
  std::size_t first;  // how many tokens the first looks at; each later one at one more
  float scale;
  std::size_t out_stride;
};
std::size_t tile_size();
// Numbers of room that look_all needs.
std::size_t tile_room(const Seen& seen);
void look_all(const Tile& tile, const Seen& seen, float* room, float* out);

}  // namespace haul::kernels
