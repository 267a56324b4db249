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
constexpr std::size_t kPanel = 4096;

// Two vectors of neighbours: as they lie, or of BF16 the even ones and the odd ones.
template <typename T>
HWY_INLINE void load_two(Floats d, const T* from, hn::Vec<Floats>& first, hn::Vec<Floats>& second) {
  if constexpr (sizeof(T) == sizeof(float)) {
    first = hn::LoadU(d, from);
    second = hn::LoadU(d, from + hn::Lanes(d));
  } else {
    load_pairs(d, from, first, second);
  }
}

// sums[c] += factors[r] * row r, kRows of them, `width` elements apart. Sums lie as load_two() has
// the numbers.
template <std::size_t kRows, typename T>
HWY_INLINE void add_rows(const T* HWY_RESTRICT rows, std::size_t width,
                         const float* HWY_RESTRICT factors, std::size_t count,
                         float* HWY_RESTRICT sums) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t c = 0;
  for (; c + 2 * lanes <= count; c += 2 * lanes) {
    auto first = hn::LoadU(d, sums + c);
    auto second = hn::LoadU(d, sums + c + lanes);
    for (std::size_t r = 0; r < kRows; ++r) {
      hn::Vec<Floats> a;
      hn::Vec<Floats> b;
      load_two(d, rows + r * width + c, a, b);
      first = hn::MulAdd(hn::Set(d, factors[r]), a, first);
      second = hn::MulAdd(hn::Set(d, factors[r]), b, second);
    }
    hn::StoreU(first, d, sums + c);
    hn::StoreU(second, d, sums + c + lanes);
  }
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
    std::size_t r = 0;
    // For the vectors after the first the rows come from the cache.
    const auto add = [&](auto rows) {
      for (std::size_t v = 0; v < count; ++v) {
        add_rows<decltype(rows)::value>(matrix + r * columns.width + begin, columns.width,
                                        vectors + v * columns.height + r, size,
                                        out + v * stride + begin);
      }
      r += decltype(rows)::value;
    };
    while (r + kTogether <= columns.height) add(std::integral_constant<std::size_t, kTogether>());
    while (r < columns.height) add(std::integral_constant<std::size_t, 1>());
    for (std::size_t v = 0; v < count && sizeof(T) < sizeof(float); ++v) {
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
