#include "kernels/row_products.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/targets.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_products.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/product.h"

HWY_BEFORE_NAMESPACE();
namespace haul::kernels {
namespace HWY_NAMESPACE {
namespace {

// A row from its beginning to its end, then the next: memory is fastest when it is read in order.
// For the vectors after the first a row comes from the cache.
template <typename T, typename Product>
HWY_INLINE void all_rows(const Rows& rows, const float* vectors, std::size_t count, float* out,
                         std::size_t stride, const Product& product_of) {
  const T* const matrix = static_cast<const T*>(rows.matrix);
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    for (std::size_t v = 0; v < count; ++v) {
      out[v * stride + r] =
          product_of(matrix + r * rows.width, vectors + v * rows.width, rows.width);
    }
  }
}

// body(0), body(1), … of numbers that the compiler knows: it keeps arrays in registers only then.
template <typename Body, std::size_t... kNumbers>
HWY_INLINE void each_of(std::index_sequence<kNumbers...>, const Body& body) {
  (body(std::integral_constant<std::size_t, kNumbers>()), ...);
}
template <std::size_t kCount, typename Body>
HWY_INLINE void each(const Body& body) {
  each_of(std::make_index_sequence<kCount>(), body);
}

constexpr std::size_t kSteps = 4;  // of two vectors each, by sums of their own

HWY_INLINE float arranged_product(const hwy::bfloat16_t* HWY_RESTRICT row,
                                  const float* HWY_RESTRICT vector, std::size_t width) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> evens[kSteps];
  hn::Vec<Floats> odds[kSteps];
  each<kSteps>([&](auto s) { evens[s] = odds[s] = hn::Zero(d); });
  const auto add = [&](auto s, std::size_t at) {
    hn::Vec<Floats> even;
    hn::Vec<Floats> odd;
    load_pairs(d, row + at, even, odd);
    evens[s] = hn::MulAdd(even, hn::LoadU(d, vector + at), evens[s]);
    odds[s] = hn::MulAdd(odd, hn::LoadU(d, vector + at + lanes), odds[s]);
  };
  std::size_t i = 0;
  for (; i + kSteps * 2 * lanes <= width; i += kSteps * 2 * lanes) {
    const auto* const ahead = reinterpret_cast<const std::uint8_t*>(row + i) + kAhead;
    for (std::size_t byte = 0; byte < kSteps * 2 * lanes * sizeof(*row); byte += kLine) {
      hwy::Prefetch(ahead + byte);
    }
    each<kSteps>([&](auto s) { add(s, i + s * 2 * lanes); });
  }
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    add(std::integral_constant<std::size_t, 0>(), i);
  }
  for (; i < width; i += lanes) {
    const std::size_t rest = std::min(lanes, width - i);
    evens[0] = hn::MulAdd(load_rest(d, row + i, rest), load_rest(d, vector + i, rest), evens[0]);
  }
  auto sum = hn::Add(evens[0], odds[0]);
  each<kSteps - 1>([&](auto s) { sum = hn::Add(sum, hn::Add(evens[s + 1], odds[s + 1])); });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void arrange_here(const float* vectors, std::size_t width, std::size_t count, float* out) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t v = 0; v < count; ++v, vectors += width, out += width) {
    std::size_t i = 0;
    for (; i + 2 * lanes <= width; i += 2 * lanes) {
      hn::Vec<Floats> even;
      hn::Vec<Floats> odd;
      hn::LoadInterleaved2(d, vectors + i, even, odd);
      hn::StoreU(even, d, out + i);
      hn::StoreU(odd, d, out + i + lanes);
    }
    std::copy(vectors + i, vectors + width, out + i);
  }
}

void row_products_here(const Rows& rows, const float* vectors, std::size_t count, float* out,
                       std::size_t stride) {
  using Half = hwy::bfloat16_t;
  if (rows.type == WeightType::kF32) {
    all_rows<float>(rows, vectors, count, out, stride, product<float>);
  } else if (rows.arranged) {
    all_rows<Half>(rows, vectors, count, out, stride, arranged_product);
  } else {
    all_rows<Half>(rows, vectors, count, out, stride, product<Half>);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace haul::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace haul::kernels {

HWY_EXPORT(row_products_here);
HWY_EXPORT(arrange_here);

void row_products(const Rows& rows, const float* vectors, std::size_t count, float* out,
                  std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(row_products_here)(rows, vectors, count, out, stride);
}

void arrange(const float* vectors, std::size_t width, std::size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(arrange_here)(vectors, width, count, out);
}

}  // namespace haul::kernels
#endif
