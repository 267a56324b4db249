#include "kernels/many_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "kernels/own_ops.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPiece = 1 << 18;   // numbers of a weight
constexpr std::int64_t kLeast = 16;        // rows of it, however wide
constexpr std::int64_t kRowsAtOnce = 128;  // of x: memory for more is in nobody's plan

// Does `work` with the pieces of a weight's rows, each as float32: (first row, piece).
template <typename Work>
void for_pieces(const at::Tensor& weight, Work work) {
  const std::int64_t rows = weight.size(0);
  const std::int64_t most =
      std::min(rows, std::max(kLeast, kPiece / std::max<std::int64_t>(1, weight.size(1))));
  const at::Tensor memory = at::empty({most, weight.size(1)}, at::kFloat);
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    at::Tensor piece = memory.narrow(0, 0, count);
    piece.copy_(weight.narrow(0, first, count));
    work(first, piece);
  }
}

// The weight is asked for times x, as in floats of many rows: the other way round some CPUs would
// lay it out anew.
void fill_by_output(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    at::Tensor& out) {
  const at::Tensor columns = x.t();
  for_pieces(weight, [&](std::int64_t first, const at::Tensor& piece) {
    at::Tensor sums = at::mm(piece, columns);
    if (bias.defined()) sums.add_(bias.narrow(0, first, piece.size(0)).unsqueeze(1));
    out.narrow(1, first, piece.size(0)).copy_(sums.t());
  });
}

void fill_by_input(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   at::Tensor& out) {
  at::Tensor sums = at::zeros(out.sizes(), at::kFloat);
  for_pieces(weight, [&](std::int64_t first, const at::Tensor& piece) {
    at::addmm_out(sums, sums, x.narrow(1, first, piece.size(0)), piece);
  });
  if (bias.defined()) sums.add_(bias);
  out.copy_(sums);
}

// What torch asks itself before it leaves a product to oneDNN, which some builds of it lack.
bool torch_says(const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  return op && op->typed<bool()>().call();
}

bool cpu_multiplies(at::ScalarType type) {
  static const bool bf16 = torch_says("mkldnn::_is_mkldnn_bf16_supported");
  static const bool f16 = torch_says("mkldnn::_is_mkldnn_fp16_supported");
  return (type != at::kBFloat16 || bf16) && (type != at::kHalf || f16);
}

}  // namespace

bool are_many_rows(const at::Tensor& x) {
  return x.is_cpu() && !are_few_rows(x) && !cpu_multiplies(x.scalar_type());
}

at::Tensor many_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     Lies lies) {
  const bool by_output = lies == Lies::kByOutput;
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(by_output ? 0 : 1);
  at::Tensor out = at::empty(sizes, x.options());
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::Tensor all = out.view({-1, sizes.back()});
  const at::Tensor added = bias.defined() ? as_floats(bias) : bias;
  for (std::int64_t first = 0; first < rows.size(0); first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, rows.size(0) - first);
    at::Tensor some = all.narrow(0, first, count);
    (by_output ? fill_by_output : fill_by_input)(as_floats(rows.narrow(0, first, count)), weight,
                                                 added, some);
  }
  return out;
}

}  // namespace haul::kernels
