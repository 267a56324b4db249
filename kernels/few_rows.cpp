#include "kernels/few_rows.h"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "kernels/column_products.h"
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

// Where a weight lies by input, threads take whole blocks of columns, of which each row has two
// lines of BF16.
constexpr std::int64_t kColumns = 64;

template <typename T>
void fill(const at::Tensor& vectors, const at::Tensor& matrix, Lies lies, const Finish& finish,
          at::Tensor& products, at::Tensor& out) {
  const bool by_output = lies == Lies::kByOutput;
  const std::int64_t width = matrix.size(by_output ? 1 : 0);
  const std::int64_t height = matrix.size(by_output ? 0 : 1);
  const std::int64_t count = vectors.numel() / width;
  const WeightType type = std::is_same_v<T, float> ? WeightType::kF32 : WeightType::kBF16;
  const std::int64_t block = by_output ? 1 : kColumns;
  const std::int64_t grain = std::max<std::int64_t>(
      by_output ? 8 : 2, kPartBytes / (width * block * matrix.element_size()));
  const float* const from = vectors.const_data_ptr<float>();
  auto* const sums = products.mutable_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<T>();
  const std::int64_t blocks = (height + block - 1) / block;
  at::parallel_for(0, blocks, grain, [&](std::int64_t first_block, std::int64_t last_block) {
    const std::int64_t first = first_block * block;
    const std::int64_t last = std::min(height, last_block * block);
    const auto begin = static_cast<std::size_t>(first);
    const auto end = static_cast<std::size_t>(last);
    const auto many = static_cast<std::size_t>(count);
    const auto in = static_cast<std::size_t>(width);
    const auto stride = static_cast<std::size_t>(height);
    if (by_output) {
      row_products({type, matrix.const_data_ptr(), in, begin, end, true}, from, many, sums, stride);
    } else {
      column_products({type, matrix.const_data_ptr(), in, stride, begin, end}, from, many, sums,
                      stride);
    }
    for (std::int64_t v = 0; v < count; ++v) {
      const std::int64_t at = v * height + first;
      finish_part(finish, {at, first, last - first}, sums + at, to + at);
    }
  });
}

at::Tensor floats_or_nothing(const at::Tensor& x) {
  return x.defined() ? as_floats(x) : x;
}

at::Tensor arranged(const at::Tensor& vectors) {
  at::Tensor result = at::empty(vectors.sizes(), vectors.options());
  const auto width = static_cast<std::size_t>(vectors.size(-1));
  arrange(vectors.const_data_ptr<float>(), width, static_cast<std::size_t>(vectors.numel()) / width,
          result.mutable_data_ptr<float>());
  return result;
}

}  // namespace

bool are_few_rows(const at::Tensor& x) {
  return x.numel() <= static_cast<std::int64_t>(kMostVectors) * x.size(-1);
}

at::Tensor few_rows(const at::Tensor& x, const at::Tensor& weight, const Finish& finish,
                    Lies lies) {
  at::Tensor vectors = as_floats(x);
  const at::Tensor matrix = weight.contiguous();
  const Finish in_floats{floats_or_nothing(finish.bias), floats_or_nothing(finish.residual),
                         floats_or_nothing(finish.gate), finish.curve};
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(lies == Lies::kByOutput ? 0 : 1);
  at::Tensor out = at::empty(sizes, x.options());
  if (x.scalar_type() == at::kFloat) {
    fill<float>(vectors, matrix, lies, in_floats, out, out);
  } else {
    at::Tensor products = at::empty(sizes, vectors.options());
    if (lies == Lies::kByOutput) vectors = arranged(vectors);
    fill<at::BFloat16>(vectors, matrix, lies, in_floats, products, out);
  }
  return out;
}

}  // namespace haul::kernels
