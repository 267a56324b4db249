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

// Sums that are kept in registers at once: enough to wait for none of them.
constexpr std::size_t kSums = HWY_ARCH_ARM ? 16 : 8;

template <typename T>
HWY_INLINE float product(const T* HWY_RESTRICT row, const float* HWY_RESTRICT vector,
                         std::size_t width) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + kSums * lanes <= width; i += kSums * lanes) {
    for (std::size_t s = 0; s < kSums; ++s) {
      const std::size_t at = i + s * lanes;
      sums[s] = hn::MulAdd(load(d, row + at), hn::LoadU(d, vector + at), sums[s]);
    }
  }
  for (; i + lanes <= width; i += lanes) {
    sums[0] = hn::MulAdd(load(d, row + i), hn::LoadU(d, vector + i), sums[0]);
  }
  if (i < width) {
    const auto rest = load_rest(d, row + i, width - i);
    sums[0] = hn::MulAdd(rest, load_rest(d, vector + i, width - i), sums[0]);
  }
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t s = 0; s < half; ++s) sums[s] = hn::Add(sums[s], sums[s + half]);
  }
  return hn::GetLane(hn::SumOfLanes(d, sums[0]));
}

// A row from its beginning to its end, then the next: memory is fastest when it is read in order.
// For the vectors after the first a row comes from the cache.
template <typename T>
void all_rows(const Rows& rows, const float* vectors, std::size_t count, float* out,
              std::size_t stride) {
  const T* const matrix = static_cast<const T*>(rows.matrix);
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    for (std::size_t v = 0; v < count; ++v) {
      out[v * stride + r] = product(matrix + r * rows.width, vectors + v * rows.width, rows.width);
    }
  }
}

void row_products_here(const Rows& rows, const float* vectors, std::size_t count, float* out,
                       std::size_t stride) {
  switch (rows.type) {
    case WeightType::kF32:
      return all_rows<float>(rows, vectors, count, out, stride);
    case WeightType::kBF16:
      return all_rows<hwy::bfloat16_t>(rows, vectors, count, out, stride);
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
