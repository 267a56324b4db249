#pragma once

// The turning of a head's rows, for every kernel that needs it: rounded in one way, so that
// attention which turns what it looks with gives the bits of turning first.

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/rotate.h"

namespace haul::kernels::cuda {

template <typename T, typename Data>
__device__ T* row_of(const HeadRows<Data>& rows, std::int64_t b, std::int64_t h, std::int64_t t) {
  return static_cast<T*>(rows.data) + b * rows.by_batch + h * rows.by_head + t * rows.by_token;
}

// Element i of rows whose first `turning` elements turn by the angles of a token.
template <typename T>
struct Turn {
  int i = 0;
  int other = 0;  // the element it turns with
  float cosine = 1, sine = 0;

  __device__ Turn(int element, int turning, const T* cosines, const T* sines)
      : i(element), other(element) {
    if (i >= turning) return;
    const int half = turning / 2;
    other = i < half ? i + half : i - half;
    cosine = as_float(fresh(cosines + i));
    sine = as_float(fresh(sines + i));
    if (i < half) sine = -sine;
  }
  __device__ T operator()(const T* row) const {
    const T value = fresh(row + i);
    if (other == i) return value;
    return as_number<T>(fmaf(as_float(value), cosine, as_float(fresh(row + other)) * sine));
  }
};

}  // namespace haul::kernels::cuda
