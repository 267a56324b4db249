#pragma once

// Linear layers and what follows them. Pure.

#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/operand.h"
#include "kernels/row_math.h"

namespace haul::kernels {

// x (…, in) times weight (out, in), and bias (out) and then residual (…, out) added where they are
// defined. By the operator haul::linear where that serves.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                  const at::Tensor& residual = {});
at::Tensor plain_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                        const at::Tensor& residual = {});

// The same of a weight that lies the other way round, (in, out); or what goes through a curve,
// without a residual. By the operator haul::conv1d where that serves: few rows, and what
// are_many_rows().
at::Tensor conv1d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual = {}, std::optional<Curve> curve = std::nullopt);
at::Tensor plain_conv1d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& residual = {}, std::optional<Curve> curve = std::nullopt);

// curve(gate) * linear(x, weight, bias), by the operator haul::gated_linear where that serves.
// `gate` is (…, out).
at::Tensor gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& gate, Curve curve);
at::Tensor plain_gated_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const at::Tensor& gate, Curve curve);

// x through a curve. By the operator haul::curved on GPUs, where few rows get the bits that a
// product with a curve gives them.
at::Tensor curved(const at::Tensor& x, Curve curve);
at::Tensor plain_curved(const at::Tensor& x, Curve curve);

// A layer's weight (out, in), of a conv1d() (in, out), and its bias (out) or none.
struct LinearWeights {
  at::Tensor weight;
  at::Tensor bias;
};

// linear() of x, which may have to be normalised, and what goes through a curve: all at once by the
// operator haul::linears where that serves.
at::Tensor linear(const Operand& x, const LinearWeights& layer,
                  std::optional<Curve> curve = std::nullopt);

// conv1d() of it, at once by the operator haul::normed_conv1d where that serves.
at::Tensor conv1d(const Operand& x, const LinearWeights& layer,
                  std::optional<Curve> curve = std::nullopt);

// linear() by each of them. At once by the operator haul::linears where that serves, and by
// haul::products where weights are fetched to a GPU.
std::vector<at::Tensor> linears(const Operand& x, std::span<const LinearWeights> layers);

// curve(linear(x, gate)) * linear(x, layer). At once by the operator haul::gated_pair where that
// serves.
at::Tensor gated_pair(const Operand& x, const LinearWeights& gate, const LinearWeights& layer,
                      Curve curve);

}  // namespace haul::kernels
