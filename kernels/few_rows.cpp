#include "kernels/few_rows.h"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "kernels/own_ops.h"
#include "kernels/row_products.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPartBytes = 32 << 10;  // of weights, that are worth a thread

// A part of a row of output.
struct Part {
  std::int64_t at;      // where it is in the whole output
  std::int64_t column;  // and in its row
  std::int64_t count;
};

// Rounded as torch's ops would one after the other. `products` may be `out`.
template <typename T>
void finish_part(const Finish& finish, const Part& part, float* products, T* out) {
  const auto add = [&](const at::Tensor& numbers, std::int64_t at) {
    if (!numbers.defined()) return;
    const float* const added = numbers.const_data_ptr<float>() + at;
    for (std::int64_t i = 0; i < part.count; ++i) products[i] += added[i];
  };
  add(finish.bias, part.column);
  if constexpr (!std::is_same_v<T, float>) {
    for (std::int64_t i = 0; i < part.count; ++i) products[i] = static_cast<T>(products[i]);
  }
  add(finish.residual, part.at);
  if (finish.gate.defined()) {
    gate_row(finish.gate.const_data_ptr<float>() + part.at, finish.curve,
             static_cast<std::size_t>(part.count), products);
  }
  if constexpr (!std::is_same_v<T, float>) {
    for (std::int64_t i = 0; i < part.count; ++i) out[i] = static_cast<T>(products[i]);
  }
}

template <typename T>
void fill(const at::Tensor& vectors, const at::Tensor& matrix, const Finish& finish,
          at::Tensor& products, at::Tensor& out) {
  const std::int64_t width = matrix.size(1);
  const std::int64_t height = matrix.size(0);
  const std::int64_t count = vectors.numel() / width;
  const Rows rows{std::is_same_v<T, float> ? WeightType::kF32 : WeightType::kBF16,
                  matrix.const_data_ptr(), static_cast<std::size_t>(width), 0, 0};
  const std::int64_t grain =
      std::max<std::int64_t>(8, kPartBytes / (width * matrix.element_size()));
  const float* const from = vectors.const_data_ptr<float>();
  auto* const sums = products.mutable_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<T>();
  at::parallel_for(0, height, grain, [&](std::int64_t begin, std::int64_t end) {
    Rows some = rows;
    some.begin = static_cast<std::size_t>(begin);
    some.end = static_cast<std::size_t>(end);
    row_products(some, from, static_cast<std::size_t>(count), sums,
                 static_cast<std::size_t>(height));
    for (std::int64_t v = 0; v < count; ++v) {
      const std::int64_t at = v * height + begin;
      finish_part(finish, {at, begin, end - begin}, sums + at, to + at);
    }
  });
}

at::Tensor floats_or_nothing(const at::Tensor& x) {
  return x.defined() ? as_floats(x) : x;
}

}  // namespace

bool are_few_rows(const at::Tensor& x) {
  return x.numel() <= static_cast<std::int64_t>(kMostVectors) * x.size(-1);
}

at::Tensor few_rows(const at::Tensor& x, const at::Tensor& weight, const Finish& finish) {
  const at::Tensor vectors = as_floats(x);
  const at::Tensor matrix = weight.contiguous();
  const Finish in_floats{floats_or_nothing(finish.bias), floats_or_nothing(finish.residual),
                         floats_or_nothing(finish.gate), finish.curve};
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  at::Tensor out = at::empty(sizes, x.options());
  if (x.scalar_type() == at::kFloat) {
    fill<float>(vectors, matrix, in_floats, out, out);
  } else {
    at::Tensor products = at::empty(sizes, vectors.options());
    fill<at::BFloat16>(vectors, matrix, in_floats, products, out);
  }
  return out;
}

}  // namespace haul::kernels
