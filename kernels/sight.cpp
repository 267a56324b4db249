#include "kernels/sight.h"

#include <algorithm>
#include <limits>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sight.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/product.h"

HWY_BEFORE_NAMESPACE();
namespace haul::kernels {
namespace HWY_NAMESPACE {
namespace {

// A vector of numbers, or the one at the end of a row.
template <typename T>
struct Whole {
  using Tag = Floats;
  static HWY_INLINE hn::Vec<Tag> load(const T* from) { return HWY_NAMESPACE::load(Tag(), from); }
};
template <typename T>
struct Single {
  using Tag = hn::CappedTag<float, 1>;
  static HWY_INLINE hn::Vec<Tag> load(const T* from) {
    if constexpr (sizeof(T) == sizeof(float)) {
      return hn::LoadU(Tag(), from);
    } else {
      return hn::PromoteTo(Tag(), hn::LoadU(hn::Rebind<T, Tag>(), from));
    }
  }
};

// Registers: keys at once in scores, and vectors of a value at once in sums.
constexpr std::size_t kKeys = HWY_ARCH_ARM ? 8 : 4;
constexpr std::size_t kWide = HWY_ARCH_ARM ? 4 : 2;
constexpr std::size_t kQueries = 4;

// Scores to chances.
HWY_INLINE void weigh(float* scores, std::size_t size) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const float most = *std::max_element(scores, scores + size);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto less = hn::Sub(hn::LoadU(d, scores + i), hn::Set(d, most));
    hn::StoreU(hn::Exp(d, less), d, scores + i);
  }
  for (; i < size; ++i) scores[i] = hn::GetLane(hn::Exp(d, hn::Set(d, scores[i] - most)));
  float sum = 0;
  for (i = 0; i < size; ++i) sum += scores[i];
  for (i = 0; i < size; ++i) scores[i] /= sum;
}

// The sums of values by the chances of kCount queries, kVectors vectors of them: out[q * stride].
// Chances of a token lie one after the other, those of the next `step` further.
template <std::size_t kCount, std::size_t kVectors, typename Load, typename T>
HWY_INLINE void add_values(const float* HWY_RESTRICT chances, std::size_t step,
                           const T* HWY_RESTRICT values, std::size_t tokens, std::size_t stride,
                           float* HWY_RESTRICT out, std::size_t out_stride) {
  using Tag = typename Load::Tag;
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Tag> sums[kCount][kVectors];
  for (auto& row : sums) {
    for (auto& sum : row) sum = hn::Zero(d);
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    hn::Vec<Tag> parts[kVectors];
    for (std::size_t i = 0; i < kVectors; ++i) {
      parts[i] = Load::load(values + t * stride + i * lanes);
    }
    for (std::size_t q = 0; q < kCount; ++q) {
      const auto chance = hn::Set(d, chances[t * step + q]);
      for (std::size_t i = 0; i < kVectors; ++i) {
        sums[q][i] = hn::MulAdd(chance, parts[i], sums[q][i]);
      }
    }
  }
  for (std::size_t q = 0; q < kCount; ++q) {
    for (std::size_t i = 0; i < kVectors; ++i) {
      hn::StoreU(sums[q][i], d, out + q * out_stride + i * lanes);
    }
  }
}

// Of whole rows.
template <std::size_t kCount, typename T>
HWY_INLINE void mean_values(const float* chances, std::size_t step, const SeenAs<T>& seen,
                            std::size_t tokens, float* out, std::size_t out_stride) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + kWide * lanes <= seen.size; i += kWide * lanes) {
    add_values<kCount, kWide, Whole<T>>(chances, step, seen.values + i, tokens, seen.value_stride,
                                        out + i, out_stride);
  }
  for (; i + lanes <= seen.size; i += lanes) {
    add_values<kCount, 1, Whole<T>>(chances, step, seen.values + i, tokens, seen.value_stride,
                                    out + i, out_stride);
  }
  for (; i < seen.size; ++i) {
    add_values<kCount, 1, Single<T>>(chances, step, seen.values + i, tokens, seen.value_stride,
                                     out + i, out_stride);
  }
}

template <typename T>
HWY_INLINE void look_at(const OneToken& token, const SeenAs<T>& seen, float* room, float* out) {
  for (std::size_t t = 0; t < seen.tokens; ++t) {
    const T* const key = seen.keys + t * seen.key_stride;
    for (std::size_t h = 0; h < token.heads; ++h) {
      float score = token.scale * product(key, token.queries + h * seen.size, seen.size);
      if (token.bias != nullptr) score += token.bias[h * token.bias_stride + t];
      room[h * seen.tokens + t] = score;
    }
  }
  for (std::size_t h = 0; h < token.heads; ++h) {
    float* const chances = room + h * seen.tokens;
    weigh(chances, seen.tokens);
    mean_values<1>(chances, 1, seen, seen.tokens, out + h * seen.size, seen.size);
  }
}

void look_here(const OneToken& token, const Seen& seen, float* room, float* out) {
  look_at(token, seen, room, out);
}

// Under Highway's name for them.
template <typename To, typename From>
SeenAs<To> renamed(const SeenAs<From>& seen) {
  return {reinterpret_cast<const To*>(seen.keys),
          reinterpret_cast<const To*>(seen.values),
          seen.tokens,
          seen.size,
          seen.key_stride,
          seen.value_stride};
}

void look_at_bf16(const OneToken& token, const SeenAs<c10::BFloat16>& seen, float* room,
                  float* out) {
  look_at(token, renamed<hwy::bfloat16_t>(seen), room, out);
}

void look_at_f16(const OneToken& token, const SeenAs<c10::Half>& seen, float* room, float* out) {
  look_at(token, renamed<hwy::float16_t>(seen), room, out);
}

std::size_t tile_size_here() {
  return 2 * hn::Lanes(Floats());
}

// scores[t * tile] for kCount keys from `keys` on, a lane for each query.
template <std::size_t kCount>
HWY_INLINE void score(const float* HWY_RESTRICT columns, const float* HWY_RESTRICT keys,
                      const Seen& seen, float* HWY_RESTRICT scores) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kCount][2];
  for (auto& sum : sums) sum[0] = sum[1] = hn::Zero(d);
  for (std::size_t j = 0; j < seen.size; ++j) {
    const auto low = hn::LoadU(d, columns + j * 2 * lanes);
    const auto high = hn::LoadU(d, columns + j * 2 * lanes + lanes);
    for (std::size_t k = 0; k < kCount; ++k) {
      const auto element = hn::Set(d, keys[k * seen.key_stride + j]);
      sums[k][0] = hn::MulAdd(low, element, sums[k][0]);
      sums[k][1] = hn::MulAdd(high, element, sums[k][1]);
    }
  }
  for (std::size_t k = 0; k < kCount; ++k) {
    hn::StoreU(sums[k][0], d, scores + k * 2 * lanes);
    hn::StoreU(sums[k][1], d, scores + k * 2 * lanes + lanes);
  }
}

// Scores to chances, a lane for each query.
HWY_INLINE void weigh_lanes(float* scores, std::size_t tokens, std::size_t step) {
  const Floats d;
  auto most = hn::LoadU(d, scores);
  for (std::size_t t = 1; t < tokens; ++t) most = hn::Max(most, hn::LoadU(d, scores + t * step));
  auto sum = hn::Zero(d);
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto chance = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + t * step), most));
    sum = hn::Add(sum, chance);
    hn::StoreU(chance, d, scores + t * step);
  }
  const auto share = hn::Div(hn::Set(d, 1.0F), sum);
  for (std::size_t t = 0; t < tokens; ++t) {
    hn::StoreU(hn::Mul(hn::LoadU(d, scores + t * step), share), d, scores + t * step);
  }
}

void look_all_here(const Tile& tile, const Seen& seen, float* room, float* out) {
  const std::size_t width = tile_size_here();
  const std::size_t tokens = std::min(seen.tokens, tile.first + tile.count - 1);
  float* const columns = room;  // queries, element by element; zeros where the tile is not full
  float* const scores = room + seen.size * width;
  for (std::size_t q = 0; q < width; ++q) {
    for (std::size_t j = 0; j < seen.size; ++j) {
      columns[j * width + q] =
          q < tile.count ? tile.scale * tile.queries[q * tile.query_stride + j] : 0.0F;
    }
  }
  std::size_t t = 0;
  for (; t + kKeys <= tokens; t += kKeys) {
    score<kKeys>(columns, seen.keys + t * seen.key_stride, seen, scores + t * width);
  }
  for (; t < tokens; ++t) {
    score<1>(columns, seen.keys + t * seen.key_stride, seen, scores + t * width);
  }
  for (std::size_t q = 0; q < tile.count; ++q) {
    for (t = tile.first + q; t < tokens; ++t) {
      scores[t * width + q] = std::numeric_limits<float>::lowest() / 2;
    }
  }
  weigh_lanes(scores, tokens, width);
  weigh_lanes(scores + width / 2, tokens, width);
  std::size_t q = 0;
  for (; q + kQueries <= tile.count; q += kQueries) {
    mean_values<kQueries>(scores + q, width, seen, tokens, out + q * tile.out_stride,
                          tile.out_stride);
  }
  for (; q < tile.count; ++q) {
    mean_values<1>(scores + q, width, seen, tokens, out + q * tile.out_stride, tile.out_stride);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace haul::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace haul::kernels {

HWY_EXPORT(look_here);
HWY_EXPORT(look_at_bf16);
HWY_EXPORT(look_at_f16);
HWY_EXPORT(tile_size_here);
HWY_EXPORT(look_all_here);

void look(const OneToken& token, const Seen& seen, float* room, float* out) {
  HWY_DYNAMIC_DISPATCH(look_here)(token, seen, room, out);
}

void look(const OneToken& token, const SeenAs<c10::BFloat16>& seen, float* room, float* out) {
  HWY_DYNAMIC_DISPATCH(look_at_bf16)(token, seen, room, out);
}

void look(const OneToken& token, const SeenAs<c10::Half>& seen, float* room, float* out) {
  HWY_DYNAMIC_DISPATCH(look_at_f16)(token, seen, room, out);
}

std::size_t tile_size() {
  return HWY_DYNAMIC_DISPATCH(tile_size_here)();
}

std::size_t tile_room(const Seen& seen) {
  return tile_size() * (seen.size + seen.tokens);
}

void look_all(const Tile& tile, const Seen& seen, float* room, float* out) {
  HWY_DYNAMIC_DISPATCH(look_all_here)(tile, seen, room, out);
}

}  // namespace haul::kernels
#endif
