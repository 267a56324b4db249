#include "kernels/attend_one.h"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/library.h>

#include "kernels/own_ops.h"
#include "kernels/row_math.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPart = 1 << 13;  // numbers of keys that are worth a thread

// From one to the next along a dimension; those of size 1 stand for all.
std::int64_t step(const at::Tensor& x, std::int64_t dimension) {
  return x.size(dimension) == 1 ? 0 : x.stride(dimension);
}

at::Tensor own_attend_one(const at::Tensor& queries, const at::Tensor& keys,
                          const at::Tensor& values, const std::optional<at::Tensor>& bias,
                          double scale) {
  const at::Tensor q = queries.contiguous();
  const at::Tensor added = bias ? bias->contiguous() : at::Tensor();
  const std::int64_t heads = q.size(1);
  const std::int64_t size = q.size(3);
  const std::int64_t tokens = keys.size(2);
  const std::int64_t share = heads / keys.size(1);
  at::Tensor out = at::empty({q.size(0), 1, heads * size}, q.options());
  const auto* const q_data = q.const_data_ptr<float>();
  const auto* const k_data = keys.const_data_ptr<float>();
  const auto* const v_data = values.const_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<float>();
  const std::int64_t grain = kPart / (tokens * size) + 1;
  at::parallel_for(0, q.size(0) * heads, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scores(static_cast<std::size_t>(std::min(share, end - begin) * tokens));
    // Those that look at the same keys go together.
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t b = i / heads;
      const std::int64_t h = i % heads;
      const std::int64_t kv = h / share;
      const std::int64_t next = std::min(end, b * heads + (kv + 1) * share);
      Sight sight{};
      sight.queries = q_data + i * size;
      sight.keys = k_data + b * keys.stride(0) + kv * keys.stride(1);
      sight.values = v_data + b * values.stride(0) + kv * values.stride(1);
      sight.heads = static_cast<std::size_t>(next - i);
      sight.tokens = static_cast<std::size_t>(tokens);
      sight.size = static_cast<std::size_t>(size);
      sight.key_stride = static_cast<std::size_t>(keys.stride(2));
      sight.value_stride = static_cast<std::size_t>(values.stride(2));
      sight.scale = static_cast<float>(scale);
      if (added.defined()) {
        sight.bias = added.const_data_ptr<float>() + b * step(added, 0) + h * step(added, 1);
        sight.bias_stride = static_cast<std::size_t>(step(added, 1));
      }
      see(sight, scores.data(), to + i * size);
      i = next;
    }
  });
  return out;
}

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def(
      "attend_one(Tensor queries, Tensor keys, Tensor values, Tensor? bias, float scale) -> "
      "Tensor");
}
TORCH_LIBRARY_IMPL(haul, CPU, library) {
  library.impl("attend_one", own_attend_one);
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("attend_one", torch::CppFunction::makeFallthrough());
}

}  // namespace

at::Tensor attend_one(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                      const at::Tensor& bias, double scale) {
  const bool serves = queries.scalar_type() == at::kFloat &&
                      has_own_ops({&queries, &keys, &values, &bias}) && keys.stride(-1) == 1 &&
                      values.stride(-1) == 1;
  if (!serves) return plain_attend_one(queries, keys, values, bias, scale);
  static const auto op = own_op<decltype(own_attend_one)>("haul::attend_one");
  return op.call(queries, keys, values,
                 bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt, scale);
}

at::Tensor plain_attend_one(const at::Tensor& queries, const at::Tensor& keys,
                            const at::Tensor& values, const at::Tensor& bias, double scale) {
  const std::int64_t batch = queries.size(0);
  const std::int64_t heads = queries.size(1);
  const std::int64_t size = queries.size(3);
  const std::int64_t kv_heads = keys.size(1);
  // The heads that share keys are as good as tokens of one head: nothing is copied.
  const std::int64_t share = heads / kv_heads;
  const at::Tensor grouped = queries.reshape({batch, kv_heads, share, size});
  std::optional<at::Tensor> added;
  if (bias.defined()) {
    added = bias.expand({bias.size(0), heads, 1, keys.size(2)})
                .reshape({bias.size(0), kv_heads, share, keys.size(2)});
  }
  return at::scaled_dot_product_attention(grouped, keys, values, added, 0.0, false, scale)
      .reshape({batch, 1, heads * size});
}

}  // namespace haul::kernels
