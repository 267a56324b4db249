#include "kernels/row_math.h"

#include <cmath>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_math.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/product.h"

HWY_BEFORE_NAMESPACE();
namespace haul::kernels {
namespace HWY_NAMESPACE {
namespace {

using Single = hn::CappedTag<float, 1>;

// Calls body(tag, i) for whole vectors, and for single elements behind them.
template <typename Body>
HWY_INLINE void for_each_vector(std::size_t size, const Body& body) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) body(Floats(), i);
  for (; i < size; ++i) body(Single(), i);
}

void normed_row_here(const float* x, const float* weight, float epsilon, std::size_t size,
                     float* out) {
  const float mean = product(x, x, size) / static_cast<float>(size);
  const float factor = 1 / std::sqrt(mean + epsilon);
  for_each_vector(size, [&](auto d, std::size_t i) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), hn::LoadU(d, weight + i)),
               d, out + i);
  });
}

void turned_row_here(const float* x, const float* cosine, const float* sine, std::size_t size,
                     float* out) {
  const std::size_t half = size / 2;
  for_each_vector(half, [&](auto d, std::size_t i) {
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + half + i);
    const auto first =
        hn::Sub(hn::Mul(a, hn::LoadU(d, cosine + i)), hn::Mul(b, hn::LoadU(d, sine + i)));
    const auto second = hn::Add(hn::Mul(b, hn::LoadU(d, cosine + half + i)),
                                hn::Mul(a, hn::LoadU(d, sine + half + i)));
    hn::StoreU(first, d, out + i);
    hn::StoreU(second, d, out + half + i);
  });
}

void gate_row_here(const float* gate, Curve curve, std::size_t size, float* values) {
  // 0.5 * (1 + tanh(u)) is sigmoid(2 * u).
  constexpr float kTwice = 2 * 0.7978845608028654F;
  constexpr float kCubic = 0.044715F;
  for_each_vector(size, [&](auto d, std::size_t i) {
    const auto x = hn::LoadU(d, gate + i);
    auto inner = x;
    if (curve == Curve::kGeluByTanh) {
      const auto cubic = hn::Mul(hn::Mul(x, x), hn::Mul(x, hn::Set(d, kCubic)));
      inner = hn::Mul(hn::Add(x, cubic), hn::Set(d, kTwice));
    }
    const auto one = hn::Set(d, 1.0F);
    // Beyond it the exponential is no number of float32, and the result 0.
    const auto bounded = hn::Min(hn::Neg(inner), hn::Set(d, 88.0F));
    const auto sigmoid = hn::Div(one, hn::Add(one, hn::Exp(d, bounded)));
    hn::StoreU(hn::Mul(hn::Mul(x, sigmoid), hn::LoadU(d, values + i)), d, values + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace haul::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace haul::kernels {

HWY_EXPORT(normed_row_here);
HWY_EXPORT(turned_row_here);
HWY_EXPORT(gate_row_here);

void normed_row(const float* x, const float* weight, float epsilon, std::size_t size, float* out) {
  HWY_DYNAMIC_DISPATCH(normed_row_here)(x, weight, epsilon, size, out);
}

void turned_row(const float* x, const float* cosine, const float* sine, std::size_t size,
                float* out) {
  HWY_DYNAMIC_DISPATCH(turned_row_here)(x, cosine, sine, size, out);
}

void gate_row(const float* gate, Curve curve, std::size_t size, float* values) {
  HWY_DYNAMIC_DISPATCH(gate_row_here)(gate, curve, size, values);
}

}  // namespace haul::kernels
#endif
