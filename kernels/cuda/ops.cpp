// haul's operators on GPUs. What a kernel cannot serve is left to the plain twin.

#include <optional>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "kernels/attend.h"
#include "kernels/cuda/angles.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/curves.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/likeliest.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rotate.h"
#include "kernels/cuda/tell.h"
#include "kernels/linear.h"
#include "kernels/own_ops.h"
#include "kernels/rms_norm.h"
#include "kernels/rotate.h"

namespace haul::kernels {
namespace {

using Optional = std::optional<at::Tensor>;

const void* data(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr() : nullptr;
}
const void* data(const Optional& x) {
  return x ? data(*x) : nullptr;
}
void* data_of(at::Tensor& x) {
  return x.mutable_data_ptr();
}
const std::int64_t* number(const Optional& x) {
  return x ? x->const_data_ptr<std::int64_t>() : nullptr;
}

// REQUIRES: has_own_ops() of it.
cuda::Numbers numbers(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return cuda::Numbers::kF32;
  return x.scalar_type() == at::kHalf ? cuda::Numbers::kF16 : cuda::Numbers::kBF16;
}

cudaStream_t stream_for(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

constexpr std::int64_t kAccess = 16;  // bytes

bool is_aligned(const at::Tensor& x) {
  return reinterpret_cast<std::intptr_t>(x.const_data_ptr()) % kAccess == 0;
}

bool is_served(const at::Tensor& x, const at::Tensor& weight, const cuda::NormBy& norm = {}) {
  const std::int64_t width = weight.size(1);
  return has_own_ops(x.device(), x.scalar_type()) && weight.scalar_type() == x.scalar_type() &&
         x.size(-1) == width && x.numel() <= cuda::kFewVectors * width &&
         cuda::serves_width(numbers(x), static_cast<std::size_t>(width),
                            static_cast<int>(x.numel() / width), norm) &&
         weight.is_contiguous() && is_aligned(weight);
}

// A norm, or none without a weight. Without a bias: of the root of mean squares.
struct NormTensors {
  cuda::NormBy job() const { return {data(weight), data(bias), static_cast<float>(epsilon)}; }
  // Whether a kernel computes it.
  bool serves(const at::Tensor& x) const {
    return cuda::serves_norm_of(numbers(x), x.size(-1)) && (is_aligned(x) || !x.is_contiguous()) &&
           is_aligned(*weight) && (!bias || is_aligned(*bias));
  }
  at::Tensor operator()(const at::Tensor& x) const {
    if (!serves(x)) {
      return bias ? at::layer_norm(x, weight->sizes(), weight, bias, epsilon)
                  : plain_rms_norm(x, *weight, epsilon);
    }
    const at::Tensor rows = x.contiguous();
    at::Tensor out = at::empty_like(rows);
    const auto width = weight->size(0);
    const cuda::Norm all{numbers(rows),
                         data(rows),
                         job(),
                         data_of(out),
                         static_cast<int>(rows.numel() / width),
                         static_cast<int>(width)};
    const c10::cuda::CUDAGuard guard(rows.device());
    C10_CUDA_CHECK(cuda::normalise_rows(all, stream_for(rows)));
    return out;
  }

  Optional weight, bias;
  double epsilon = 0;
};

// As kernels read them.
at::Tensor as_rows(const at::Tensor& x) {
  const at::Tensor rows = x.contiguous();
  return is_aligned(rows) ? rows : rows.clone();
}

// A job on vectors, which it keeps.
struct Vectors {
  explicit Vectors(const at::Tensor& x, const cuda::NormBy& norm = {}) : rows(as_rows(x)) {
    job.numbers = numbers(rows);
    job.x = data(rows);
    job.norm = norm;
    job.width = static_cast<int>(x.size(-1));
    job.vectors = static_cast<int>(x.numel() / x.size(-1));
  }
  at::Tensor out_for(const at::Tensor& weight) const {
    std::vector<std::int64_t> sizes = rows.sizes().vec();
    sizes.back() = weight.size(0);
    return at::empty(sizes, rows.options());
  }
  void add(const at::Tensor& weight, const Optional& bias, at::Tensor* out) {
    cuda::Rows& added = job.weights[job.count++];
    added = {data(weight), data(bias), out == nullptr ? nullptr : data_of(*out),
             static_cast<int>(weight.size(0))};
  }
  void run() const {
    const c10::cuda::CUDAGuard guard(rows.device());
    C10_CUDA_CHECK(cuda::multiply_few_rows(job, stream_for(rows)));
  }

  at::Tensor rows;
  cuda::FewRows job;
};

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const Optional& bias) {
  if (!is_served(x, weight)) return at::linear(x, weight, bias);
  Vectors vectors(x);
  at::Tensor out = vectors.out_for(weight);
  vectors.add(weight, bias, &out);
  vectors.run();
  return out;
}

std::vector<at::Tensor> products(const at::Tensor& x, at::TensorList weights,
                                 const c10::List<Optional>& biases) {
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    results.push_back(product(x, weights[i], biases.get(i)));
  }
  return results;
}

at::Tensor linear_on_gpu(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                         const Optional& residual) {
  if (!is_served(x, weight)) {
    at::Tensor out = at::linear(x, weight, bias);
    return residual ? *residual + out : out;
  }
  Vectors vectors(x);
  at::Tensor out = vectors.out_for(weight);
  const at::Tensor added = residual ? residual->contiguous() : at::Tensor();
  vectors.add(weight, bias, &out);
  vectors.job.residual = data(added);
  vectors.run();
  return out;
}

// As the products of few vectors are that go through a curve. More are torch's.
at::Tensor curved_on_gpu(const at::Tensor& x, std::int64_t curve) {
  if (x.numel() > cuda::kFewVectors * x.size(-1)) {
    return plain_curved(x, static_cast<Curve>(curve));
  }
  const at::Tensor all = x.contiguous();
  at::Tensor out = at::empty_like(all);
  const cuda::Curves job{numbers(all), data(all), data_of(out), all.numel(),
                         static_cast<Curve>(curve)};
  const c10::cuda::CUDAGuard guard(x.device());
  C10_CUDA_CHECK(cuda::curve_all(job, stream_for(x)));
  return out;
}

at::Tensor gated_on_gpu(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                        const at::Tensor& gate, std::int64_t curve) {
  if (!is_served(x, weight)) {
    return curved_on_gpu(gate, curve).mul_(at::linear(x, weight, bias));
  }
  Vectors vectors(x);
  at::Tensor out = vectors.out_for(weight);
  const at::Tensor open = gate.contiguous();
  vectors.add(weight, bias, &out);
  vectors.job.gate = data(open);
  vectors.job.curve = static_cast<Curve>(curve);
  vectors.run();
  return out;
}

bool serves_conv1d(const at::Tensor& x, const at::Tensor& weight, const cuda::NormBy& norm) {
  const std::int64_t width = weight.size(0);
  return x.size(-1) == width && weight.is_contiguous() && is_aligned(weight) &&
         cuda::serves_columns(numbers(x), static_cast<std::size_t>(width),
                              static_cast<std::size_t>(weight.size(1)),
                              static_cast<int>(x.numel() / width), norm);
}

// REQUIRES: it is served.
at::Tensor run_conv1d(const at::Tensor& x, const cuda::NormBy& norm, const at::Tensor& weight,
                      const Optional& bias, const Optional& residual,
                      std::optional<std::int64_t> curve) {
  const at::Tensor rows = as_rows(x);
  const at::Tensor added = residual ? residual->contiguous() : at::Tensor();
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  at::Tensor out = at::empty(sizes, x.options());
  const cuda::Columns job{numbers(rows),
                          data(rows),
                          static_cast<int>(x.numel() / x.size(-1)),
                          static_cast<int>(x.size(-1)),
                          data(weight),
                          static_cast<int>(weight.size(1)),
                          data(bias),
                          data(added),
                          curve.has_value(),
                          static_cast<Curve>(curve.value_or(0)),
                          data_of(out),
                          norm};
  const c10::cuda::CUDAGuard guard(x.device());
  C10_CUDA_CHECK(cuda::multiply_columns(job, stream_for(x)));
  return out;
}

at::Tensor conv1d_on_gpu(const at::Tensor& x, const at::Tensor& weight, const Optional& bias,
                         const Optional& residual, std::optional<std::int64_t> curve) {
  if (serves_conv1d(x, weight, {})) return run_conv1d(x, {}, weight, bias, residual, curve);
  const auto named = curve ? std::optional(static_cast<Curve>(*curve)) : std::nullopt;
  return plain_conv1d(x, weight, bias.value_or(at::Tensor()), residual.value_or(at::Tensor()),
                      named);
}

at::Tensor normed_conv1d_on_gpu(const at::Tensor& x, const at::Tensor& by, const Optional& by_bias,
                                double epsilon, const at::Tensor& weight, const Optional& bias,
                                std::optional<std::int64_t> curve) {
  const NormTensors norm{by, by_bias, epsilon};
  if (norm.serves(x) && serves_conv1d(x, weight, norm.job())) {
    return run_conv1d(x, norm.job(), weight, bias, {}, curve);
  }
  return conv1d_on_gpu(norm(x), weight, bias, {}, curve);
}

std::vector<at::Tensor> linears_on_gpu(const at::Tensor& x, at::TensorList weights,
                                       const c10::List<Optional>& biases, const Optional& by,
                                       const Optional& by_bias, double epsilon,
                                       std::optional<std::int64_t> curve) {
  const NormTensors norm{by, by_bias, epsilon};
  bool served = weights.size() <= cuda::kMostWeights && (!by || norm.serves(x));
  for (const at::Tensor& weight : weights) served = served && is_served(x, weight, norm.job());
  if (by && !served) return linears_on_gpu(norm(x), weights, biases, {}, {}, 0, curve);
  std::vector<at::Tensor> results;
  if (!served) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor out = at::linear(x, weights[i], biases.get(i));
      results.push_back(curve ? curved_on_gpu(out, *curve) : out);
    }
    return results;
  }
  Vectors vectors(x, norm.job());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    at::Tensor out = vectors.out_for(weights[i]);
    vectors.add(weights[i], biases.get(i), &out);
    results.push_back(std::move(out));
  }
  vectors.job.curves = curve.has_value();
  vectors.job.curve = static_cast<Curve>(curve.value_or(0));
  vectors.run();
  return results;
}

at::Tensor pair_on_gpu(const at::Tensor& x, const at::Tensor& gate, const Optional& gate_bias,
                       const at::Tensor& weight, const Optional& bias, std::int64_t curve,
                       const Optional& by, const Optional& by_bias, double epsilon) {
  const NormTensors norm{by, by_bias, epsilon};
  const bool served =
      is_served(x, gate, norm.job()) && is_served(x, weight, norm.job()) && (!by || norm.serves(x));
  if (by && !served) {
    return pair_on_gpu(norm(x), gate, gate_bias, weight, bias, curve, {}, {}, 0);
  }
  if (!served) {
    // One after the other: of prompts these are large.
    at::Tensor open = curved_on_gpu(at::linear(x, gate, gate_bias), curve);
    return open.mul_(at::linear(x, weight, bias));
  }
  Vectors vectors(x, norm.job());
  at::Tensor out = vectors.out_for(weight);
  vectors.add(gate, gate_bias, nullptr);
  vectors.add(weight, bias, &out);
  vectors.job.gates = true;
  vectors.job.curve = static_cast<Curve>(curve);
  vectors.run();
  return out;
}

at::Tensor rms_norm_on_gpu(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return NormTensors{weight, std::nullopt, epsilon}(x);
}

at::Tensor layer_norm_on_gpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             double epsilon) {
  return NormTensors{weight, bias, epsilon}(x);
}

cuda::HeadRows<const void> head_rows(const at::Tensor& x) {
  return {data(x), static_cast<int>(x.size(1)), x.stride(0), x.stride(1), x.stride(2)};
}
cuda::HeadRows<void> head_rows_of(at::Tensor& x) {
  return {data_of(x), static_cast<int>(x.size(1)), x.stride(0), x.stride(1), x.stride(2)};
}

at::Tensor with_rows(const at::Tensor& x) {
  return x.stride(-1) == 1 ? x : x.contiguous();
}

at::Tensor rotate_on_gpu(const at::Tensor& queries, const at::Tensor& keys,
                         const at::Tensor& values, const at::Tensor& cosine, const at::Tensor& sine,
                         at::Tensor& kept_keys, at::Tensor& kept_values, const Optional& past) {
  const at::Tensor q = with_rows(queries);
  const at::Tensor k = with_rows(keys);
  const at::Tensor v = with_rows(values);
  const at::Tensor c = cosine.contiguous();
  const at::Tensor s = sine.contiguous();
  at::Tensor out = at::empty(q.sizes(), q.options());
  cuda::Rotate job;
  job.numbers = numbers(q);
  job.queries = head_rows(q);
  job.keys = head_rows(k);
  job.values = head_rows(v);
  job.turned = head_rows_of(out);
  job.kept_keys = head_rows_of(kept_keys);
  job.kept_values = head_rows_of(kept_values);
  job.cosine = data(c);
  job.sine = data(s);
  job.of_batch = c.size(0) == 1 ? 0 : c.size(1) * c.size(2);
  job.past = number(past);
  job.batch = static_cast<int>(q.size(0));
  job.tokens = static_cast<int>(q.size(2));
  job.size = static_cast<int>(q.size(3));
  job.turning = static_cast<int>(c.size(-1));
  const c10::cuda::CUDAGuard guard(q.device());
  C10_CUDA_CHECK(cuda::rotate_into(job, stream_for(q)));
  return out;
}

void keep_on_gpu(const at::Tensor& keys, const at::Tensor& values, at::Tensor& kept_keys,
                 at::Tensor& kept_values, const at::Tensor& past) {
  const at::Tensor k = with_rows(keys);
  const at::Tensor v = with_rows(values);
  cuda::Rotate job;  // of no queries, and by no angle
  job.numbers = numbers(k);
  job.keys = head_rows(k);
  job.values = head_rows(v);
  job.kept_keys = head_rows_of(kept_keys);
  job.kept_values = head_rows_of(kept_values);
  job.past = past.const_data_ptr<std::int64_t>();
  job.batch = static_cast<int>(k.size(0));
  job.tokens = static_cast<int>(k.size(2));
  job.size = static_cast<int>(k.size(3));
  const c10::cuda::CUDAGuard guard(k.device());
  C10_CUDA_CHECK(cuda::rotate_into(job, stream_for(k)));
}

bool has_whole_rows(const at::Tensor& cache) {
  const std::int64_t wide = kAccess / cache.element_size();
  return is_aligned(cache) && cache.stride(0) % wide == 0 && cache.stride(1) % wide == 0 &&
         cache.stride(2) % wide == 0;
}

void likeliest_on_gpu(const at::Tensor& scores, at::Tensor& ids) {
  // A block has its row's number in the grid's second dimension.
  constexpr std::int64_t kMostRows = 65535;
  const at::Tensor rows = scores.contiguous();
  if (!cuda::serves_scores_of(rows.size(1)) || rows.size(0) > kMostRows || !is_aligned(rows)) {
    ids.copy_(at::argmax(scores, 1));
    return;
  }
  cuda::Likeliest job;
  job.numbers = numbers(rows);
  job.scores = data(rows);
  job.rows = static_cast<int>(rows.size(0));
  job.width = static_cast<int>(rows.size(1));
  at::Tensor best =
      at::empty({rows.size(0), cuda::parts_for(job.numbers, job.width)}, ids.options());
  job.best = static_cast<unsigned long long*>(best.mutable_data_ptr());
  job.out = ids.mutable_data_ptr<std::int64_t>();
  const c10::cuda::CUDAGuard guard(rows.device());
  C10_CUDA_CHECK(cuda::find_likeliest(job, stream_for(rows)));
}

void tell_on_gpu(const at::Tensor& ids, at::Tensor& past, at::Tensor& told) {
  const at::Tensor each = ids.contiguous();
  const cuda::Tell job{each.const_data_ptr<std::int64_t>(), past.mutable_data_ptr<std::int64_t>(),
                       told.mutable_data_ptr<std::int64_t>(), static_cast<int>(told.size(1)),
                       static_cast<int>(told.size(0))};
  const c10::cuda::CUDAGuard guard(ids.device());
  C10_CUDA_CHECK(cuda::tell(job, stream_for(ids)));
}

std::tuple<at::Tensor, at::Tensor> angles_on_gpu(const at::Tensor& positions,
                                                 const at::Tensor& speeds, double factor,
                                                 at::ScalarType dtype) {
  const at::Tensor places = positions.contiguous();
  const at::Tensor each = speeds.contiguous();
  std::vector<std::int64_t> shape = places.sizes().vec();
  shape.push_back(2 * each.size(0));
  at::Tensor cosine = at::empty(shape, each.options().dtype(dtype));
  at::Tensor sine = at::empty_like(cosine);
  cuda::Angles job;
  job.numbers = numbers(cosine);
  job.positions = places.const_data_ptr<std::int64_t>();
  job.speeds = each.const_data_ptr<float>();
  job.cosine = cosine.mutable_data_ptr();
  job.sine = sine.mutable_data_ptr();
  job.count = places.numel();
  job.size = static_cast<int>(each.size(0));
  job.factor = static_cast<float>(factor);
  const c10::cuda::CUDAGuard guard(places.device());
  C10_CUDA_CHECK(cuda::find_angles(job, stream_for(places)));
  return {cosine, sine};
}

bool serves_attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values) {
  const std::int64_t size = queries.size(3);
  return queries.size(2) == 1 && cuda::serves_head_size(size) && keys.size(3) == size &&
         values.size(3) == size && has_whole_rows(keys) && has_whole_rows(values);
}

at::Tensor run_attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                      const cuda::FreshToken& fresh, const Optional& past, const Optional& slopes,
                      double scale) {
  const at::Tensor q = with_rows(queries);
  at::Tensor out = at::empty({q.size(0), 1, q.size(1) * q.size(3)}, q.options());
  at::Tensor seen_keys = keys;
  at::Tensor seen_values = values;
  cuda::Attend job;
  job.numbers = numbers(q);
  job.queries = head_rows(q);
  job.keys = head_rows_of(seen_keys);
  job.values = head_rows_of(seen_values);
  job.fresh = fresh;
  job.out = data_of(out);
  job.past = number(past);
  job.slopes = static_cast<const float*>(data(slopes));
  job.batch = static_cast<int>(q.size(0));
  job.room = static_cast<int>(keys.size(2));
  job.size = static_cast<int>(q.size(3));
  job.scale = static_cast<float>(scale);
  const c10::cuda::CUDAGuard guard(q.device());
  at::Tensor parts = at::empty({static_cast<std::int64_t>(cuda::floats_for_parts(job))},
                               q.options().dtype(at::kFloat));
  job.parts = parts.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::attend_one(job, stream_for(q)));
  return out;
}

at::Tensor attend_on_gpu(const at::Tensor& queries, const at::Tensor& keys,
                         const at::Tensor& values, const Optional& mask, const Optional& past,
                         const Optional& slopes, bool causal, double scale) {
  if (serves_attend(queries, keys, values)) {
    return run_attend(queries, keys, values, {}, past, slopes, scale);
  }
  return plain_attend(queries, keys, values,
                      {mask.value_or(at::Tensor()), causal, past.value_or(at::Tensor()),
                       slopes.value_or(at::Tensor())},
                      scale);
}

at::Tensor keep_and_attend_on_gpu(const at::Tensor& queries, const at::Tensor& keys,
                                  const at::Tensor& values, const Optional& cosine,
                                  const Optional& sine, at::Tensor& seen_keys,
                                  at::Tensor& seen_values, const Optional& past,
                                  const Optional& slopes, double scale) {
  if (!serves_attend(queries, seen_keys, seen_values)) {
    const Angles angles{cosine.value_or(at::Tensor()), sine.value_or(at::Tensor())};
    return keep_then_attend(queries, {keys, values}, angles, {seen_keys, seen_values},
                            {{}, false, past.value_or(at::Tensor()), slopes.value_or(at::Tensor())},
                            scale);
  }
  const at::Tensor k = with_rows(keys);
  const at::Tensor v = with_rows(values);
  cuda::FreshToken fresh{head_rows(k), head_rows(v)};
  at::Tensor c, s;
  if (cosine) {
    c = cosine->contiguous();
    s = sine->contiguous();
    fresh.cosine = data(c);
    fresh.sine = data(s);
    fresh.of_batch = c.size(0) == 1 ? 0 : c.size(2);
    fresh.turning = static_cast<int>(c.size(2));
  }
  return run_attend(queries, seen_keys, seen_values, fresh, past, slopes, scale);
}

TORCH_LIBRARY_IMPL(haul, CUDA, library) {
  library.impl("products", products);
  library.impl("linear", linear_on_gpu);
  library.impl("conv1d", conv1d_on_gpu);
  library.impl("normed_conv1d", normed_conv1d_on_gpu);
  library.impl("gated_linear", gated_on_gpu);
  library.impl("linears", linears_on_gpu);
  library.impl("curved", curved_on_gpu);
  library.impl("gated_pair", pair_on_gpu);
  library.impl("rms_norm", rms_norm_on_gpu);
  library.impl("layer_norm", layer_norm_on_gpu);
  library.impl("rotate_into", rotate_on_gpu);
  library.impl("keep", keep_on_gpu);
  library.impl("attend", attend_on_gpu);
  library.impl("keep_and_attend", keep_and_attend_on_gpu);
  library.impl("likeliest_into", likeliest_on_gpu);
  library.impl("angles", angles_on_gpu);
  library.impl("tell", tell_on_gpu);
}

}  // namespace
}  // namespace haul::kernels

// Executables ask for this name, so that the linker takes the operators in though nothing calls
// them.
extern "C" void haul_operators_of_gpus() {}
