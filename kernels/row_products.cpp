#include "kernels/row_products.h"

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
