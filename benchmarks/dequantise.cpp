// How fast quantised blocks become float32, in bytes written a second on one core, beside the
// copy of as many bytes, which no expansion can beat. benchmarks/dequantise.py runs it and adds the
// gguf package's figures.

#include "core/formats/dequantise.h"

#include <cstring>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/formats/ggml_type.h"

namespace {

using haul::core::Coding;

constexpr std::size_t kValues = std::size_t{1} << 24;  // 64 MiB of floats

void expand(benchmark::State& state, Coding coding) {
  const auto& type = haul::core::ggml_type(coding);
  std::vector<std::byte> blocks(kValues / type.block_elements * type.block_bytes);
  std::mt19937 random(1);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
  std::vector<float> values(kValues);
  for (auto _ : state) {
    haul::core::dequantise(coding, blocks, values);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kValues * sizeof(float)));
}

void copy(benchmark::State& state) {
  const std::vector<float> from(kValues, 1.0f);
  std::vector<float> to(kValues);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), kValues * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kValues * sizeof(float)));
}

BENCHMARK(copy)->Name("memcpy");
BENCHMARK_CAPTURE(expand, Q4_0, Coding::kQ4_0)->Name("Q4_0");
BENCHMARK_CAPTURE(expand, Q4_1, Coding::kQ4_1)->Name("Q4_1");
BENCHMARK_CAPTURE(expand, Q5_0, Coding::kQ5_0)->Name("Q5_0");
BENCHMARK_CAPTURE(expand, Q5_1, Coding::kQ5_1)->Name("Q5_1");
BENCHMARK_CAPTURE(expand, Q8_0, Coding::kQ8_0)->Name("Q8_0");
BENCHMARK_CAPTURE(expand, Q2_K, Coding::kQ2_K)->Name("Q2_K");
BENCHMARK_CAPTURE(expand, Q3_K, Coding::kQ3_K)->Name("Q3_K");
BENCHMARK_CAPTURE(expand, Q4_K, Coding::kQ4_K)->Name("Q4_K");
BENCHMARK_CAPTURE(expand, Q5_K, Coding::kQ5_K)->Name("Q5_K");
BENCHMARK_CAPTURE(expand, Q6_K, Coding::kQ6_K)->Name("Q6_K");

}  // namespace

BENCHMARK_MAIN();
