// The product of two rows of numbers, for each instruction set that Highway compiles a file for:
// to be included where hwy/highway.h is.

#if defined(HAUL_KERNELS_PRODUCT_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HAUL_KERNELS_PRODUCT_H
#undef HAUL_KERNELS_PRODUCT_H
#else
#define HAUL_KERNELS_PRODUCT_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace haul::kernels {
namespace HWY_NAMESPACE {

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

// The even and the odd ones of two vectors of BF16. One is the upper half of a float: of two in a
// word the second is there as it is, and the first is a shift away, which is less than widening
// them one after the other takes.
HWY_INLINE void load_pairs(Floats d, const hwy::bfloat16_t* from, hn::Vec<Floats>& even,
                           hn::Vec<Floats>& odd) {
  const hn::RebindToUnsigned<Floats> words;
#if HWY_TARGET == HWY_SCALAR  // which has no two halves in a vector
  std::uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  const auto both = hn::Set(words, word);
#else
  const hn::Repartition<std::uint16_t, Floats> halves;
  const auto both =
      hn::BitCast(words, hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from)));
#endif
  even = hn::BitCast(d, hn::ShiftLeft<16>(both));
  odd = hn::BitCast(d, hn::And(both, hn::Set(words, 0xFFFF0000U)));
}

// Sums that are kept in registers at once: enough to wait for none of them.
constexpr std::size_t kSums = HWY_ARCH_ARM ? 16 : 8;

// Bytes ahead of what is read that memory is asked for.
constexpr std::size_t kAhead = HWY_ARCH_X86 ? 1024 : 2048;
constexpr std::size_t kLine = 64;  // bytes

template <typename T>
HWY_INLINE float product(const T* HWY_RESTRICT row, const float* HWY_RESTRICT vector,
                         std::size_t width) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + kSums * lanes <= width; i += kSums * lanes) {
    const auto* const ahead = reinterpret_cast<const std::uint8_t*>(row + i) + kAhead;
    for (std::size_t byte = 0; byte < kSums * lanes * sizeof(T); byte += kLine) {
      hwy::Prefetch(ahead + byte);
    }
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

}  // namespace HWY_NAMESPACE
}  // namespace haul::kernels
HWY_AFTER_NAMESPACE();

#endif
