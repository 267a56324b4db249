#include "kernels/row_products.h"

#include <cstring>

// Vectors of SVE have no size that a compiler knows, and so no arrays; memory is the limit with
// shorter ones too.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_products.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace haul::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

template <typename T>
HWY_INLINE hn::Vec<Floats> load(Floats d, const T* from) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return hn::LoadU(d, from);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, Floats>(), from));
  }
}

// What is left of a row, with zeros behind it.
template <typename T>
HWY_INLINE hn::Vec<Floats> load_rest(Floats d, const T* from, std::size_t count) {
  T padded[HWY_MAX_BYTES / sizeof(float)];
  std::memset(padded, 0, sizeof(padded));
  std::memcpy(padded, from, count * sizeof(T));
  return load(d, padded);
}

// kRows rows at once, so that a vector is loaded once for all of them.
template <typename T, std::size_t kRows, std::size_t kVectors>
HWY_INLINE void some_rows(const T* HWY_RESTRICT matrix, std::size_t width,
                          const float* HWY_RESTRICT vectors, float* HWY_RESTRICT out,
                          std::size_t stride) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kRows][kVectors];
  for (auto& row : sums) {
    for (auto& sum : row) sum = hn::Zero(d);
  }
  std::size_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::Vec<Floats> parts[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) parts[v] = hn::LoadU(d, vectors + v * width + i);
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto weights = load(d, matrix + r * width + i);
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(weights, parts[v], sums[r][v]);
      }
    }
  }
  for (std::size_t r = 0; i < width && r < kRows; ++r) {
    const auto weights = load_rest(d, matrix + r * width + i, width - i);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto part = load_rest(d, vectors + v * width + i, width - i);
      sums[r][v] = hn::MulAdd(weights, part, sums[r][v]);
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      out[v * stride + r] = hn::GetLane(hn::SumOfLanes(d, sums[r][v]));
    }
  }
}

template <typename T, std::size_t kVectors>
void all_rows(const Rows& rows, const float* vectors, float* out, std::size_t stride) {
  constexpr std::size_t kAtOnce = 8 / kVectors;
  const T* const matrix = static_cast<const T*>(rows.matrix);
  std::size_t r = rows.begin;
  for (; r + kAtOnce <= rows.end; r += kAtOnce) {
    some_rows<T, kAtOnce, kVectors>(matrix + r * rows.width, rows.width, vectors, out + r, stride);
  }
  for (; r < rows.end; ++r) {
    some_rows<T, 1, kVectors>(matrix + r * rows.width, rows.width, vectors, out + r, stride);
  }
}

template <typename T>
void of_type(const Rows& rows, const float* vectors, std::size_t count, float* out,
             std::size_t stride) {
  switch (count) {
    case 1:
      return all_rows<T, 1>(rows, vectors, out, stride);
    case 2:
      return all_rows<T, 2>(rows, vectors, out, stride);
    case 3:
      all_rows<T, 2>(rows, vectors, out, stride);
      return all_rows<T, 1>(rows, vectors + 2 * rows.width, out + 2 * stride, stride);
    default:
      return all_rows<T, 4>(rows, vectors, out, stride);
  }
}

void row_products_here(const Rows& rows, const float* vectors, std::size_t count, float* out,
                       std::size_t stride) {
  switch (rows.type) {
    case WeightType::kF32:
      return of_type<float>(rows, vectors, count, out, stride);
    case WeightType::kBF16:
      return of_type<hwy::bfloat16_t>(rows, vectors, count, out, stride);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace haul::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace haul::kernels {

HWY_EXPORT(row_products_here);

void row_products(const Rows& rows, const float* vectors, std::size_t count, float* out,
                  std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(row_products_here)(rows, vectors, count, out, stride);
}

}  // namespace haul::kernels
#endif
