// What haul's products of one vector read on a GPU, beside torch's and beside a plain reader, on
// the matrices of a Llama 8B and 1B, a BLOOM 3B, a Qwen2 7B and, which lie by input, a GPT-2 XL:
// gigabytes a second, the best of some runs over weights that no cache holds. Then the small
// kernels of a token: microseconds.
//
//   gpu_kernels [F32]  of bfloat16, or of float32

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/attend.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rotate.h"
#include "runtime/tiers/gpu_graph.h"

namespace {

using haul::kernels::Curve;

constexpr int kRuns = 7;

at::ScalarType type = at::kBFloat16;  // of all numbers

// The work as a graph: without the host's share.
double best_seconds(const std::function<void()>& work) {
  work();
  haul::runtime::GpuGraph graph(0);
  graph.record(work);
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e30F;
  for (int i = 0; i < kRuns; ++i) {
    cudaEventRecord(begin);
    graph.replay();
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
    best = std::min(best, milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best / 1e3;
}

at::Tensor some(at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions().dtype(type).device(at::kCUDA));
}

// Gigabytes a second of something that is done with each of many weights.
class Speeds {
 public:
  Speeds(std::int64_t rows, std::int64_t width)
      : weights_(
            static_cast<std::size_t>(std::max<std::int64_t>(2, (1LL << 30) / (rows * width)))) {
    for (at::Tensor& weight : weights_) weight = some({rows, width});
  }
  double operator()(const std::function<void(const at::Tensor&)>& one) const {
    const double bytes =
        static_cast<double>(weights_.size()) * static_cast<double>(weights_[0].nbytes());
    return bytes / 1e9 / best_seconds([&] {
             for (const at::Tensor& weight : weights_) one(weight);
           });
  }

 private:
  std::vector<at::Tensor> weights_;
};

void compare_by_input(const char* name, std::int64_t width, std::int64_t columns) {
  const Speeds speed(width, columns);
  const at::Tensor x = some({1, 1, width});
  const at::Tensor bias = some({columns});
  const double own = speed([&](const at::Tensor& w) { haul::kernels::conv1d(x, w, bias); });
  const double torch = speed([&](const at::Tensor& w) { haul::kernels::plain_conv1d(x, w, bias); });
  fmt::print("{:10} {:7} x {:5}: haul {:5.0f}, torch {:5.0f} GB/s\n", name, width, columns, own,
             torch);
}

void compare(const char* name, std::int64_t rows, std::int64_t width) {
  const Speeds speed(rows, width);
  const at::Tensor x = some({1, 1, width});
  const double own = speed([&](const at::Tensor& w) { haul::kernels::linear(x, w); });
  const double pair = speed([&](const at::Tensor& w) {
    const at::Tensor first = w.narrow(0, 0, rows / 2);
    haul::kernels::gated_pair(x, {first, {}}, {w.narrow(0, rows / 2, rows / 2), {}}, Curve::kSilu);
  });
  const haul::kernels::Operand later(x, {some({width}), {}, 1e-5});
  const double normed = speed([&](const at::Tensor& w) { haul::kernels::linear(later, {w, {}}); });
  const double torch = speed([&](const at::Tensor& w) { at::linear(x, w); });
  const double reader = speed([&](const at::Tensor& w) { at::sum(w); });
  fmt::print(
      "{:10} {:7} x {:5}: haul {:5.0f}, gated {:5.0f}, normed {:5.0f}, torch {:5.0f}, torch's sum "
      "{:5.0f} GB/s\n",
      name, rows, width, own, pair, normed, torch, reader);
}

void time_small(const char* name, const std::function<void()>& work) {
  constexpr int kTimes = 200;
  const double seconds = best_seconds([&] {
    for (int i = 0; i < kTimes; ++i) work();
  });
  fmt::print("{:30} {:5.2f} us\n", name, 1e6 * seconds / kTimes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "F32") type = at::kFloat;
  const at::NoGradGuard no_gradients;
  compare("query", 4096, 4096);
  compare("q, k, v", 6144, 4096);
  compare("gate, up", 28672, 4096);
  compare("down", 4096, 14336);
  compare("head", 128256, 4096);
  compare("1B query", 2048, 2048);
  compare("1B gate, up", 16384, 2048);
  compare("1B down", 2048, 8192);
  compare("3B query", 2560, 2560);
  compare("3B up", 10240, 2560);
  compare("3B down", 2560, 10240);
  compare("7B query", 3584, 3584);
  compare("7B gate, up", 37888, 3584);
  compare("7B down", 3584, 18944);
  compare_by_input("XL c_attn", 1600, 4800);
  compare_by_input("XL c_proj", 1600, 1600);
  compare_by_input("XL c_fc", 1600, 6400);
  compare_by_input("XL down", 6400, 1600);
  const at::Tensor x = some({1, 1, 4096});
  const at::Tensor norm = some({4096});
  time_small("layer norm of 4096", [&] { haul::kernels::layer_norm(x, norm, norm, 1e-5); });
  const at::Tensor past = at::zeros({1}, x.options().dtype(at::kLong));
  const at::Tensor token = some({1, 25, 1, 64});
  const at::Tensor room = some({1, 25, 64, 64});
  time_small("keeping a token", [&] {
    haul::kernels::keep({token, token, room, room, past}, token);
  });
  time_small("norm of 4096", [&] { haul::kernels::rms_norm(x, norm, 1e-5); });
  const at::Tensor queries = some({1, 32, 1, 128});
  for (const std::int64_t tokens : {200, 4096}) {
    const at::Tensor keys = some({1, 8, tokens, 128});
    const at::Tensor values = some({1, 8, tokens, 128});
    time_small(fmt::format("attention to {}", tokens).c_str(),
               [&] { haul::kernels::attend(queries, keys, values, {}, 0.1); });
  }
  return 0;
}
