#include "kernels/column_products.h"

#include <algorithm>
#include <type_traits>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/column_products.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/product.h"

HWY_BEFORE_NAMESPACE();
namespace haul::kernels {
namespace HWY_NAMESPACE {
namespace {

// Rows that are added to the sums in one go, so that these are read and written seldom.
constexpr std::size_t kTogether = 16;
// Sums that stay in a near cache.
constexpr std::size_t kPanel = 8192;

template <typename T>
constexpr bool kInPairs = std::is_same_v<T, hwy::bfloat16_t>;

// Two vectors of neighbours: as they lie, or of BF16 the even ones and the odd ones.
template <typename T>
HWY_INLINE void load_two(Floats d, const T* from, hn::Vec<Floats>& first, hn::Vec<Floats>& second) {
  if constexpr (kInPairs<T>) {
    load_pairs(d, from, first, second);
  } else {
    first = load(d, from);
    second = load(d, from + hn::Lanes(d));
  }
}

// Pairs of vectors whose numbers are one line of memory.
template <typename T>
constexpr std::size_t kPairs = std::max<std::size_t>(1, kLine / (2 * hn::MaxLanes(Floats()) *
                                                                 sizeof(T)));

// sums[c] += factors[r] * row r, kRows of them, `width` elements apart. Sums lie as load_two() has
// the numbers.
template <std::size_t kRows, typename T>
HWY_INLINE void add_rows(const T* HWY_RESTRICT rows, std::size_t width,
                         const float* HWY_RESTRICT factors, std::size_t count,
                         float* HWY_RESTRICT sums) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t c = 0;
  const auto add_pairs = [&](auto pairs) {
    constexpr std::size_t kCount = decltype(pairs)::value;
    hn::Vec<Floats> first[kCount];
    hn::Vec<Floats> second[kCount];
    for (std::size_t p = 0; p < kCount; ++p) {
      first[p] = hn::LoadU(d, sums + c + 2 * p * lanes);
      second[p] = hn::LoadU(d, sums + c + (2 * p + 1) * lanes);
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      const T* const row = rows + r * width + c;
      const auto factor = hn::Set(d, factors[r]);
      for (std::size_t p = 0; p < kCount; ++p) {
        hn::Vec<Floats> a;
        hn::Vec<Floats> b;
        load_two(d, row + 2 * p * lanes, a, b);
        first[p] = hn::MulAdd(factor, a, first[p]);
        second[p] = hn::MulAdd(factor, b, second[p]);
      }
    }
    for (std::size_t p = 0; p < kCount; ++p) {
      hn::StoreU(first[p], d, sums + c + 2 * p * lanes);
      hn::StoreU(second[p], d, sums + c + (2 * p + 1) * lanes);
    }
    c += 2 * kCount * lanes;
  };
  while (c + 2 * kPairs<T> * lanes <= count) {
    add_pairs(std::integral_constant<std::size_t, kPairs<T>>());
  }
  while (c + 2 * lanes <= count) add_pairs(std::integral_constant<std::size_t, 1>());
  for (; c < count; c += lanes) {
    const std::size_t rest = std::min(lanes, count - c);
    auto sum = load_rest(d, sums + c, rest);
    for (std::size_t r = 0; r < kRows; ++r) {
      sum = hn::MulAdd(hn::Set(d, factors[r]), load_rest(d, rows + r * width + c, rest), sum);
    }
    float several[HWY_MAX_BYTES / sizeof(float)];
    hn::StoreU(sum, d, several);
    std::copy(several, several + rest, sums + c);
  }
}

// Even and odd ones become neighbours again.
HWY_INLINE void put_in_order(std::size_t count, float* sums) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t c = 0; c + 2 * lanes <= count; c += 2 * lanes) {
    const auto even = hn::LoadU(d, sums + c);
    const auto odd = hn::LoadU(d, sums + c + lanes);
    hn::StoreInterleaved2(even, odd, d, sums + c);
  }
}

template <typename T>
void all_columns(const Columns& columns, const float* vectors, std::size_t count, float* out,
                 std::size_t stride) {
  const T* const matrix = static_cast<const T*>(columns.matrix);
  for (std::size_t v = 0; v < count; ++v) {
    std::fill(out + v * stride + columns.begin, out + v * stride + columns.end, 0.0F);
  }
  for (std::size_t begin = columns.begin; begin < columns.end; begin += kPanel) {
    const std::size_t size = std::min(kPanel, columns.end - begin);
    std::size_t r = columns.top;
    // For the vectors after the first the rows come from the cache.
    const auto add = [&](auto rows) {
      for (std::size_t v = 0; v < count; ++v) {
        add_rows<decltype(rows)::value>(matrix + r * columns.width + begin, columns.width,
                                        vectors + v * columns.height + r, size,
                                        out + v * stride + begin);
      }
      r += decltype(rows)::value;
    };
    while (r + kTogether <= columns.bottom) add(std::integral_constant<std::size_t, kTogether>());
    while (r < columns.bottom) add(std::integral_constant<std::size_t, 1>());
    for (std::size_t v = 0; v < count && kInPairs<T>; ++v) {
      put_in_order(size, out + v * stride + begin);
    }
  }
}

void column_products_here(const Columns& columns, const float* vectors, std::size_t count,
                          float* out, std::size_t stride) {
  switch (columns.type) {
    case WeightType::kF32:
      return all_columns<float>(columns, vectors, count, out, stride);
    case WeightType::kBF16:
      return all_columns<hwy::bfloat16_t>(columns, vectors, count, out, stride);
    case WeightType::kF16:
      return all_columns<hwy::float16_t>(columns, vectors, count, out, stride);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace haul::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace haul::kernels {

HWY_EXPORT(column_products_here);

void column_products(const Columns& columns, const float* vectors, std::size_t count, float* out,
                     std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(column_products_here)(columns, vectors, count, out, stride);
}

}  // namespace haul::kernels
#endif
