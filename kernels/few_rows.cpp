#include "kernels/few_rows.h"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "kernels/column_products.h"
#include "kernels/own_ops.h"
#include "kernels/row_products.h"
#include "kernels/weight_type.h"

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

// What a product is of.
struct Operands {
  const at::Tensor& vectors;
  const at::Tensor& matrix;
  std::int64_t in, out, count;
  const float* from() const { return vectors.const_data_ptr<float>(); }
};

template <typename T>
void fill_by_output(const Operands& of, const Finish& finish, at::Tensor& products,
                    at::Tensor& out) {
  const std::int64_t grain =
      std::max<std::int64_t>(8, kPartBytes / (of.in * of.matrix.element_size()));
  auto* const sums = products.mutable_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<T>();
  at::parallel_for(0, of.out, grain, [&](std::int64_t first, std::int64_t last) {
    row_products({kWeightType<T>, of.matrix.const_data_ptr(), static_cast<std::size_t>(of.in),
                  static_cast<std::size_t>(first), static_cast<std::size_t>(last), true},
                 of.from(), static_cast<std::size_t>(of.count), sums,
                 static_cast<std::size_t>(of.out));
    for (std::int64_t v = 0; v < of.count; ++v) {
      const std::int64_t at = v * of.out + first;
      finish_part(finish, {at, first, last - first}, sums + at, to + at);
    }
  });
}

// Where a weight lies by input, a thread takes neighbouring blocks of it: long pieces of a few
// rows. Their sums are added afterwards, in an order that the shape alone decides.
constexpr std::int64_t kBlockRows = 256;  // at least
constexpr std::int64_t kBlockColumns = 128;
constexpr std::int64_t kMostParts = 32;  // of a column

template <typename T>
void fill_by_input(const Operands& of, const Finish& finish, at::Tensor& products,
                   at::Tensor& out) {
  const std::int64_t parts = std::clamp<std::int64_t>(of.in / kBlockRows, 1, kMostParts);
  const std::int64_t across = (of.out + kBlockColumns - 1) / kBlockColumns;
  const at::Tensor parted =
      parts == 1 ? products : at::empty({parts, of.count, of.out}, at::kFloat);
  auto* const partial = parted.mutable_data_ptr<float>();
  const std::int64_t size = of.count * of.out;
  const std::int64_t worth = std::max<std::int64_t>(
      1, kPartBytes / (of.in / parts * kBlockColumns * of.matrix.element_size()));
  at::parallel_for(0, parts * across, worth, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first / across; part * across < last; ++part) {
      const std::int64_t begin = std::max(first - part * across, std::int64_t{0}) * kBlockColumns;
      const std::int64_t end = std::min((last - part * across) * kBlockColumns, of.out);
      column_products(
          {kWeightType<T>, of.matrix.const_data_ptr(), static_cast<std::size_t>(of.in),
           static_cast<std::size_t>(of.out), static_cast<std::size_t>(begin),
           static_cast<std::size_t>(end), static_cast<std::size_t>(of.in * part / parts),
           static_cast<std::size_t>(of.in * (part + 1) / parts)},
          of.from(), static_cast<std::size_t>(of.count), partial + part * size,
          static_cast<std::size_t>(of.out));
    }
  });
  auto* const sums = products.mutable_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<T>();
  const std::int64_t grain = std::max<std::int64_t>(64, kPartBytes / (parts * 4 * of.count));
  at::parallel_for(0, of.out, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t v = 0; v < of.count; ++v) {
      const std::int64_t at = v * of.out + first;
      if (parts > 1) std::copy_n(partial + at, last - first, sums + at);
      for (std::int64_t part = 1; part < parts; ++part) {
        const float* const added = partial + part * size + at;
        for (std::int64_t i = 0; i < last - first; ++i) sums[at + i] += added[i];
      }
      finish_part(finish, {at, first, last - first}, sums + at, to + at);
    }
  });
}

template <typename T>
void fill(const Operands& of, Lies lies, const Finish& finish, at::Tensor& products,
          at::Tensor& out) {
  (lies == Lies::kByOutput ? fill_by_output<T> : fill_by_input<T>)(of, finish, products, out);
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
  return x.numel() <= static_cast<std::int64_t>(kFewVectors) * x.size(-1);
}

at::Tensor few_rows(const at::Tensor& x, const at::Tensor& weight, const Finish& finish,
                    Lies lies) {
  at::Tensor vectors = as_floats(x);
  const at::Tensor matrix = weight.contiguous();
  const Finish in_floats{floats_or_nothing(finish.bias), floats_or_nothing(finish.residual),
                         floats_or_nothing(finish.gate), finish.curve};
  const bool by_output = lies == Lies::kByOutput;
  const std::int64_t in = weight.size(by_output ? 1 : 0);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(by_output ? 0 : 1);
  at::Tensor out = at::empty(sizes, x.options());
  const Operands of{vectors, matrix, in, sizes.back(), vectors.numel() / in};
  if (x.scalar_type() == at::kFloat) {
    fill<float>(of, lies, in_floats, out, out);
  } else {
    at::Tensor products = at::empty(sizes, vectors.options());
    if (x.scalar_type() == at::kHalf) {
      fill<at::Half>(of, lies, in_floats, products, out);
    } else {
      if (by_output) vectors = arranged(vectors);
      fill<at::BFloat16>(of, lies, in_floats, products, out);
    }
  }
  return out;
}

}  // namespace haul::kernels
