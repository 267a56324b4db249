#include "kernels/few_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

#include "kernels/own_ops.h"
#include "kernels/row_products.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPartBytes = 32 << 10;  // of weights, that are worth a thread

using Optional = std::optional<at::Tensor>;

Optional optional(const at::Tensor& tensor) {
  return tensor.defined() ? Optional(tensor) : std::nullopt;
}

std::vector<std::int64_t> sizes_of_output(const at::Tensor& x, const at::Tensor& weight) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return sizes;
}

// What becomes of products: `at` is their place in the rows of output, `row` of it their place in a
// row.
struct Finish {
  at::Tensor bias, residual, gate;  // contiguous float32, or undefined
  Curve curve = Curve::kSilu;

  static Finish of(const Optional& bias, const Optional& residual) {
    return {bias ? as_floats(*bias) : at::Tensor(), residual ? as_floats(*residual) : at::Tensor(),
            at::Tensor()};
  }

  // Rounded as torch's ops would one after the other.
  template <typename T>
  void operator()(float* products, T* out, std::int64_t at, std::int64_t row,
                  std::int64_t count) const {
    const auto rounded = [](float value) { return static_cast<float>(static_cast<T>(value)); };
    if (bias.defined()) {
      const float* const added = bias.const_data_ptr<float>() + row;
      for (std::int64_t i = 0; i < count; ++i) products[i] += added[i];
    }
    for (std::int64_t i = 0; i < count; ++i) products[i] = rounded(products[i]);
    if (residual.defined()) {
      const float* const added = residual.const_data_ptr<float>() + at;
      for (std::int64_t i = 0; i < count; ++i) products[i] += added[i];
    }
    if (gate.defined()) {
      gate_row(gate.const_data_ptr<float>() + at, curve, static_cast<std::size_t>(count), products);
    }
    if constexpr (!std::is_same_v<T, float>) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(products[i]);
    }
  }
};

template <typename T>
void fill(const at::Tensor& vectors, const at::Tensor& matrix, const Finish& finish,
          at::Tensor& products, at::Tensor& out) {
  const std::int64_t width = matrix.size(1);
  const std::int64_t height = matrix.size(0);
  const std::int64_t count = vectors.numel() / width;
  const Rows rows{std::is_same_v<T, float> ? WeightType::kF32 : WeightType::kBF16,
                  matrix.const_data_ptr(), static_cast<std::size_t>(width), 0, 0};
  const std::int64_t grain = std::max<std::int64_t>(
      8, kPartBytes / std::max<std::int64_t>(1, width * matrix.element_size()));
  const float* const from = vectors.const_data_ptr<float>();
  auto* const sums = products.mutable_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<T>();
  at::parallel_for(0, height, grain, [&](std::int64_t begin, std::int64_t end) {
    Rows part = rows;
    part.begin = static_cast<std::size_t>(begin);
    part.end = static_cast<std::size_t>(end);
    row_products(part, from, static_cast<std::size_t>(count), sums,
                 static_cast<std::size_t>(height));
    for (std::int64_t v = 0; v < count; ++v) {
      const std::int64_t at = v * height + begin;
      finish(sums + at, to + at, at, begin, end - begin);
    }
  });
}

at::Tensor finished(const at::Tensor& x, const at::Tensor& weight, const Finish& finish) {
  const at::Tensor vectors = as_floats(x);
  const at::Tensor matrix = weight.contiguous();
  at::Tensor out = at::empty(sizes_of_output(x, weight), x.options());
  if (x.scalar_type() == at::kFloat) {
    fill<float>(vectors, matrix, finish, out, out);
  } else {
    at::Tensor products = at::empty(out.sizes(), vectors.options());
    fill<at::BFloat16>(vectors, matrix, finish, products, out);
  }
  return out;
}

at::Tensor few_rows(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                    const Optional& residual) {
  return finished(x, weight, Finish::of(bias, residual));
}

at::Tensor gated_rows(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                      const at::Tensor& gate, std::int64_t curve) {
  Finish finish = Finish::of(bias, std::nullopt);
  finish.gate = as_floats(gate);
  finish.curve = static_cast<Curve>(curve);
  return finished(x, weight, finish);
}

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def("few_rows(Tensor x, Tensor weight, Tensor? bias, Tensor? residual) -> Tensor");
  library.def(
      "gated_rows(Tensor x, Tensor weight, Tensor? bias, Tensor gate, int curve) -> Tensor");
}
TORCH_LIBRARY_IMPL(haul, CPU, library) {
  library.impl("few_rows", few_rows);
  library.impl("gated_rows", gated_rows);
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("few_rows", torch::CppFunction::makeFallthrough());
  library.impl("gated_rows", torch::CppFunction::makeFallthrough());
}

}  // namespace

bool has_few_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& other) {
  return has_own_ops({&x, &weight, &other}) &&
         x.numel() <= static_cast<std::int64_t>(kMostVectors) * x.size(-1);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual) {
  if (!has_few_rows(x, weight, residual)) return plain_linear(x, weight, bias, residual);
  static const auto op = own_op<decltype(few_rows)>("haul::few_rows");
  return op.call(x, weight, optional(bias), optional(residual));
}

at::Tensor plain_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& residual) {
  const at::Tensor product = at::linear(x, weight, optional(bias));
  return residual.defined() ? residual + product : product;
}

at::Tensor gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        at::Tensor gate, Curve curve) {
  if (!has_few_rows(x, weight, gate)) {
    return plain_gated_linear(x, weight, bias, std::move(gate), curve);
  }
  static const auto op = own_op<decltype(gated_rows)>("haul::gated_rows");
  return op.call(x, weight, optional(bias), gate, static_cast<std::int64_t>(curve));
}

at::Tensor plain_gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              at::Tensor gate, Curve curve) {
  gate = curve == Curve::kSilu ? at::silu(gate) : at::gelu(gate, "tanh");
  return gate * plain_linear(x, weight, bias, {});
}

}  // namespace haul::kernels
