#include "kernels/few_rows.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "kernels/row_products.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPartBytes = 32 << 10;  // of weights, that are worth a thread

WeightType weight_type(const at::Tensor& weight) {
  return weight.scalar_type() == at::kFloat ? WeightType::kF32 : WeightType::kBF16;
}

at::Tensor few_rows(const at::Tensor& x, const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias) {
  const std::int64_t width = weight.size(1);
  const std::int64_t height = weight.size(0);
  const at::Tensor vectors = x.reshape({-1, width}).to(at::kFloat).contiguous();
  at::Tensor out = at::empty({vectors.size(0), height}, vectors.options());
  const at::Tensor matrix = weight.contiguous();
  Rows rows{weight_type(matrix), matrix.const_data_ptr(), static_cast<std::size_t>(width), 0, 0};
  const std::int64_t grain = std::max<std::int64_t>(
      8, kPartBytes / std::max<std::int64_t>(1, width * matrix.element_size()));
  at::parallel_for(0, height, grain, [&](std::int64_t begin, std::int64_t end) {
    Rows part = rows;
    part.begin = static_cast<std::size_t>(begin);
    part.end = static_cast<std::size_t>(end);
    const auto stride = static_cast<std::size_t>(height);
    for (std::int64_t v = 0; v < vectors.size(0); v += kMostVectors) {
      const auto count =
          static_cast<std::size_t>(std::min<std::int64_t>(kMostVectors, vectors.size(0) - v));
      row_products(part, vectors.const_data_ptr<float>() + v * width, count,
                   out.mutable_data_ptr<float>() + v * height, stride);
    }
  });
  if (bias) out.add_(*bias);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = height;
  return out.view(sizes).to(x.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def("few_rows(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
}
TORCH_LIBRARY_IMPL(haul, CPU, library) {
  library.impl("few_rows", few_rows);
}

}  // namespace

bool has_few_rows(const at::Tensor& x, const at::Tensor& weight) {
  const auto known = [](at::ScalarType type) {
    return type == at::kFloat || type == at::kBFloat16;
  };
  return x.is_cpu() && weight.is_cpu() && x.numel() > 0 &&
         x.numel() <= static_cast<std::int64_t>(kMostVectors) * x.size(-1) &&
         x.scalar_type() == weight.scalar_type() && known(x.scalar_type()) &&
         !(at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad()));
}

at::Tensor linear_of_few_rows(const at::Tensor& x, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("haul::few_rows", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&,
                                               const std::optional<at::Tensor>&)>();
  return op.call(x, weight, bias);
}

}  // namespace haul::kernels
