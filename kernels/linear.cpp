#include "kernels/linear.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

#include "kernels/few_rows.h"
#include "kernels/many_rows.h"
#include "kernels/own_ops.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPart = 1 << 13;  // numbers that are worth a thread

using Optional = std::optional<at::Tensor>;

Optional optional(const at::Tensor& tensor) {
  return tensor.defined() ? Optional(tensor) : std::nullopt;
}

std::optional<std::int64_t> number(std::optional<Curve> curve) {
  return curve ? std::optional(static_cast<std::int64_t>(*curve)) : std::nullopt;
}

// The product is asked for the other way round, weight times x, which torch gives to BLAS. Asked
// for x times weight, it would on some CPUs lay each weight out anew, in memory of its own, every
// time.
at::Tensor floats_of_many_rows(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, const at::Tensor& residual) {
  const at::Tensor columns = x.reshape({-1, x.size(-1)}).t();
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  at::Tensor out = at::empty(sizes, x.options());
  at::Tensor result = out.view({-1, weight.size(0)}).t();
  if (bias.defined()) {
    at::addmm_out(result, bias.unsqueeze(1), weight, columns);
    if (residual.defined()) out.add_(residual);
  } else if (residual.defined()) {
    at::addmm_out(result, residual.reshape({-1, weight.size(0)}).t(), weight, columns);
  } else {
    at::mm_out(result, weight, columns);
  }
  return out;
}

void gate_all(const at::Tensor& gate, Curve curve, at::Tensor& values) {
  const at::Tensor open = gate.contiguous();
  at::parallel_for(0, values.numel(), kPart, [&](std::int64_t begin, std::int64_t end) {
    gate_row(open.const_data_ptr<float>() + begin, curve, static_cast<std::size_t>(end - begin),
             values.mutable_data_ptr<float>() + begin);
  });
}

at::Tensor finished(const at::Tensor& x, const at::Tensor& weight, const Finish& finish) {
  if (are_few_rows(x)) return few_rows(x, weight, finish);
  if (x.scalar_type() == at::kFloat) {
    at::Tensor out = floats_of_many_rows(x, weight, finish.bias, finish.residual);
    if (finish.gate.defined()) gate_all(finish.gate, finish.curve, out);
    return out;
  }
  at::Tensor out = are_many_rows(x) ? many_rows(x, weight, finish.bias)
                                    : at::linear(x, weight, optional(finish.bias));
  if (finish.residual.defined()) out.add_(finish.residual);
  if (finish.gate.defined()) out.mul_(plain_curved(finish.gate, finish.curve));
  return out;
}

// What an operator takes of several layers.
struct Lists {
  explicit Lists(std::span<const LinearWeights> layers) {
    for (const LinearWeights& layer : layers) {
      weights.push_back(layer.weight);
      biases.push_back(optional(layer.bias));
    }
  }
  std::vector<at::Tensor> weights;
  c10::List<Optional> biases;
};

std::vector<at::Tensor> call_products(const at::Tensor& x, std::span<const LinearWeights> layers) {
  using Products =
      std::vector<at::Tensor>(const at::Tensor&, at::TensorList, const c10::List<Optional>&);
  static const auto op = own_op<Products>("haul::products");
  const Lists lists(layers);
  return op.call(x, lists.weights, lists.biases);
}

std::vector<at::Tensor> call_linears(const Operand& operand, std::span<const LinearWeights> layers,
                                     std::optional<Curve> curve = std::nullopt) {
  using Linears = std::vector<at::Tensor>(const at::Tensor&, at::TensorList,
                                          const c10::List<Optional>&, const Optional&,
                                          const Optional&, double, std::optional<std::int64_t>);
  static const auto op = own_op<Linears>("haul::linears");
  const Lists lists(layers);
  const Norm norm = operand.norm.value_or(Norm());
  return op.call(operand.x, lists.weights, lists.biases, optional(norm.weight), optional(norm.bias),
                 norm.epsilon, number(curve));
}

// What a GPU does, or a GPU and the CPU together: an operator, so that a weight which lies
// elsewhere is noticed.
bool are_products(const at::Tensor& x, const LinearWeights& layer) {
  const bool gradients =
      at::GradMode::is_enabled() && (x.requires_grad() || layer.weight.requires_grad());
  return x.is_cuda() && layer.weight.is_cuda() && !gradients;
}

at::Tensor own_linear(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                      const Optional& residual) {
  return finished(x, weight,
                  {bias.value_or(at::Tensor()), residual.value_or(at::Tensor()), at::Tensor()});
}

at::Tensor own_gated_linear(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                            const at::Tensor& gate, std::int64_t curve) {
  return finished(x, weight,
                  {bias.value_or(at::Tensor()), at::Tensor(), gate, static_cast<Curve>(curve)});
}

at::Tensor own_conv1d(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                      const Optional& residual, std::optional<std::int64_t> curve) {
  const at::Tensor added = bias.value_or(at::Tensor());
  at::Tensor out;
  if (are_many_rows(x)) {
    out = many_rows(x, weight, added, Lies::kByInput);
    if (residual) out.add_(*residual);
  } else {
    const Finish finish{added, residual.value_or(at::Tensor()), at::Tensor()};
    out = few_rows(x, weight, finish, Lies::kByInput);
  }
  return curve ? plain_curved(out, static_cast<Curve>(*curve)) : out;
}

// On GPUs a weight that is fetched goes through haul::products, with which the CPU may help.
bool has_own_linear(const at::Tensor& x, const LinearWeights& layer, const at::Tensor& other) {
  if (!has_own_ops({&x, &layer.weight, &layer.bias, &other})) return false;
  return x.is_cpu() || !(lies_elsewhere(layer.weight) || lies_elsewhere(layer.bias));
}

// Several weights by one operator: none of them may have to be fetched.
bool are_at_hand(const at::Tensor& x, const LinearWeights& layer) {
  return x.is_cuda() && has_own_linear(x, layer, {});
}

using Are = bool (*)(const at::Tensor&, const LinearWeights&);
bool all_of(std::span<const LinearWeights> layers, Are are, const at::Tensor& x) {
  return std::all_of(layers.begin(), layers.end(),
                     [&](const LinearWeights& layer) { return are(x, layer); });
}

// With its norm where one operator takes that and all layers, else normalised.
Operand for_one_operator(const Operand& operand, std::span<const LinearWeights> layers) {
  if (!operand.norm) return operand;
  const LinearWeights norm{operand.norm->weight, operand.norm->bias};
  const bool serves = are_at_hand(operand.x, norm) && all_of(layers, are_at_hand, operand.x);
  return serves ? operand : operand.value();
}

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def("products(Tensor x, Tensor[] weights, Tensor?[] biases) -> Tensor[]");
  library.def("linear(Tensor x, Tensor weight, Tensor? bias, Tensor? residual) -> Tensor");
  library.def(
      "conv1d(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int? curve) -> Tensor");
  library.def(
      "normed_conv1d(Tensor x, Tensor norm, Tensor? norm_bias, float epsilon, Tensor weight, "
      "Tensor? bias, int? curve) -> Tensor");
  library.def(
      "gated_linear(Tensor x, Tensor weight, Tensor? bias, Tensor gate, int curve) -> Tensor");
  library.def(
      "linears(Tensor x, Tensor[] weights, Tensor?[] biases, Tensor? norm, Tensor? norm_bias, "
      "float epsilon, int? curve) -> Tensor[]");
  library.def("curved(Tensor x, int curve) -> Tensor");
  library.def(
      "gated_pair(Tensor x, Tensor gate, Tensor? gate_bias, Tensor weight, Tensor? bias, "
      "int curve, Tensor? norm, Tensor? norm_bias, float epsilon) -> Tensor");
}
TORCH_LIBRARY_IMPL(haul, CPU, library) {
  library.impl("linear", own_linear);
  library.impl("conv1d", own_conv1d);
  library.impl("gated_linear", own_gated_linear);
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("products", torch::CppFunction::makeFallthrough());
  library.impl("linear", torch::CppFunction::makeFallthrough());
  library.impl("conv1d", torch::CppFunction::makeFallthrough());
  library.impl("normed_conv1d", torch::CppFunction::makeFallthrough());
  library.impl("gated_linear", torch::CppFunction::makeFallthrough());
  library.impl("linears", torch::CppFunction::makeFallthrough());
  library.impl("curved", torch::CppFunction::makeFallthrough());
  library.impl("gated_pair", torch::CppFunction::makeFallthrough());
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual) {
  if (!has_own_linear(x, {weight, bias}, residual)) {
    return plain_linear(x, weight, bias, residual);
  }
  static const auto op = own_op<decltype(own_linear)>("haul::linear");
  return op.call(x, weight, optional(bias), optional(residual));
}

at::Tensor plain_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& residual) {
  const std::array<LinearWeights, 1> layer = {{{weight, bias}}};
  const at::Tensor result = are_products(x, layer[0]) ? call_products(x, layer).front()
                                                      : at::linear(x, weight, optional(bias));
  return residual.defined() ? residual + result : result;
}

at::Tensor conv1d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual, std::optional<Curve> curve) {
  const bool serves = are_many_rows(x) || are_few_rows(x);
  if (!serves || !has_own_ops({&x, &weight, &bias, &residual})) {
    return plain_conv1d(x, weight, bias, residual, curve);
  }
  static const auto op = own_op<decltype(own_conv1d)>("haul::conv1d");
  return op.call(x, weight, optional(bias), optional(residual), number(curve));
}

at::Tensor plain_conv1d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& residual, std::optional<Curve> curve) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  const at::Tensor result =
      (bias.defined() ? at::addmm(bias, rows, weight) : at::mm(rows, weight)).view(sizes);
  if (curve) return plain_curved(result, *curve);
  return residual.defined() ? residual + result : result;
}

at::Tensor gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& gate, Curve curve) {
  if (!has_own_linear(x, {weight, bias}, gate)) {
    return plain_gated_linear(x, weight, bias, gate, curve);
  }
  static const auto op = own_op<decltype(own_gated_linear)>("haul::gated_linear");
  return op.call(x, weight, optional(bias), gate, static_cast<std::int64_t>(curve));
}

at::Tensor plain_gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const at::Tensor& gate, Curve curve) {
  return plain_curved(gate, curve) * plain_linear(x, weight, bias);
}

at::Tensor curved(const at::Tensor& x, Curve curve) {
  if (!x.is_cuda() || !has_own_ops({&x})) return plain_curved(x, curve);
  static const auto op = own_op<at::Tensor(const at::Tensor&, std::int64_t)>("haul::curved");
  return op.call(x, static_cast<std::int64_t>(curve));
}

at::Tensor plain_curved(const at::Tensor& x, Curve curve) {
  return curve == Curve::kSilu ? at::silu(x) : at::gelu(x, "tanh");
}

at::Tensor linear(const Operand& x, const LinearWeights& layer, std::optional<Curve> curve) {
  const std::span<const LinearWeights> one(&layer, 1);
  const Operand operand = for_one_operator(x, one);
  if (operand.norm || (curve && are_at_hand(operand.x, layer))) {
    return call_linears(operand, one, curve).front();
  }
  const at::Tensor result = linear(operand.x, layer.weight, layer.bias);
  return curve ? curved(result, *curve) : result;
}

at::Tensor conv1d(const Operand& x, const LinearWeights& layer, std::optional<Curve> curve) {
  const Operand operand = for_one_operator(x, std::span(&layer, 1));
  if (!operand.norm) return conv1d(operand.x, layer.weight, layer.bias, {}, curve);
  using Normed = at::Tensor(const at::Tensor&, const at::Tensor&, const Optional&, double,
                            const at::Tensor&, const Optional&, std::optional<std::int64_t>);
  static const auto op = own_op<Normed>("haul::normed_conv1d");
  const Norm& norm = *operand.norm;
  return op.call(operand.x, norm.weight, optional(norm.bias), norm.epsilon, layer.weight,
                 optional(layer.bias), number(curve));
}

std::vector<at::Tensor> linears(const Operand& x, std::span<const LinearWeights> layers) {
  const Operand operand = for_one_operator(x, layers);
  if (all_of(layers, are_at_hand, operand.x)) return call_linears(operand, layers);
  if (all_of(layers, are_products, operand.x)) return call_products(operand.x, layers);
  std::vector<at::Tensor> results;
  for (const LinearWeights& layer : layers) results.push_back(linear(operand, layer));
  return results;
}

at::Tensor gated_pair(const Operand& x, const LinearWeights& gate, const LinearWeights& layer,
                      Curve curve) {
  const std::array<LinearWeights, 2> both = {gate, layer};
  const Operand operand = for_one_operator(x, both);
  if (all_of(both, are_at_hand, operand.x)) {
    using Gated =
        at::Tensor(const at::Tensor&, const at::Tensor&, const Optional&, const at::Tensor&,
                   const Optional&, std::int64_t, const Optional&, const Optional&, double);
    static const auto op = own_op<Gated>("haul::gated_pair");
    const Norm norm = operand.norm.value_or(Norm());
    return op.call(operand.x, gate.weight, optional(gate.bias), layer.weight, optional(layer.bias),
                   static_cast<std::int64_t>(curve), optional(norm.weight), optional(norm.bias),
                   norm.epsilon);
  }
  if (all_of(both, are_products, operand.x)) {
    std::vector<at::Tensor> results = call_products(operand.x, both);
    return results[1].mul_(curved(results[0], curve));
  }
  return gated_linear(operand.x, layer.weight, layer.bias, linear(operand, gate), curve);
}

}  // namespace haul::kernels
