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

// kRows rows times kCount vectors, each element loaded once for all of them.
template <std::size_t kRows, std::size_t kCount, typename T>
HWY_INLINE void tile(const T* HWY_RESTRICT rows, std::size_t width,
                     const float* HWY_RESTRICT vectors, float* out, std::size_t stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kRows][kCount];
  each<kRows>([&](auto r) { each<kCount>([&](auto v) { sums[r][v] = hn::Zero(d); }); });
  const auto add = [&](const auto& row_at, const auto& vector_at) {
    hn::Vec<Floats> elements[kRows];
    each<kRows>([&](auto r) { elements[r] = row_at(rows + r * width); });
    each<kCount>([&](auto v) {
      const auto vector = vector_at(vectors + v * width);
      each<kRows>([&](auto r) { sums[r][v] = hn::MulAdd(elements[r], vector, sums[r][v]); });
    });
  };
  std::size_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const auto at = [&](const auto* from) { return load(d, from + i); };
    add(at, at);
  }
  if (i < width) {
    const auto rest = [&](const auto* from) { return load_rest(d, from + i, width - i); };
    add(rest, rest);
  }
  each<kRows>([&](auto r) {
    each<kCount>([&](auto v) { out[v * stride + r] = hn::GetLane(hn::SumOfLanes(d, sums[r][v])); });
  });
}

// For the vectors after the first few the rows come from the cache: callers give few of them.
template <typename T>
HWY_INLINE void all_tiles(const Rows& rows, const float* vectors, std::size_t count, float* out,
                          std::size_t stride) {
  // As many as registers hold sums for.
  constexpr std::size_t kRowsAtOnce = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3 ? 2 : 4;
  constexpr std::size_t kVectorsAtOnce = 4;
  const T* const matrix = static_cast<const T*>(rows.matrix);
  const auto go = [&](std::size_t v, auto vectors_at_once) {
    constexpr std::size_t kCount = decltype(vectors_at_once)::value;
    std::size_t r = rows.begin;
    const auto tiles = [&](auto rows_at_once) {
      constexpr std::size_t kRows = decltype(rows_at_once)::value;
      for (; r + kRows <= rows.end; r += kRows) {
        tile<kRows, kCount>(matrix + r * rows.width, rows.width, vectors + v * rows.width,
                            out + v * stride + r, stride);
      }
    };
    tiles(std::integral_constant<std::size_t, kRowsAtOnce>());
    tiles(std::integral_constant<std::size_t, 1>());
  };
  std::size_t v = 0;
  for (; v + kVectorsAtOnce <= count; v += kVectorsAtOnce) {
    go(v, std::integral_constant<std::size_t, kVectorsAtOnce>());
  }
  for (; v < count; ++v) go(v, std::integral_constant<std::size_t, 1>());
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
  const auto go = [&](auto number) {
    using T = decltype(number);
    if (rows.together) {
      all_tiles<T>(rows, vectors, count, out, stride);
    } else {
      all_rows<T>(rows, vectors, count, out, stride, product<T>);
    }
  };
  switch (rows.type) {
    case WeightType::kF32:
      return go(float());
    case WeightType::kF16:
      return go(hwy::float16_t());
    case WeightType::kBF16:
      if (rows.together || !rows.arranged) return go(hwy::bfloat16_t());
      all_rows<hwy::bfloat16_t>(rows, vectors, count, out, stride, arranged_product);
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
