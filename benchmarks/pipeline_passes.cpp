// One process of a pipeline: pipeline_passes MODEL ROWS TOKENS CHUNKS ROUNDS. The last one prints
// the seconds of each pass over a batch.

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "haul/error.h"
#include "haul/torch/partial_state.h"
#include "haul/torch/pipeline.h"

int main(int count, char** values) try {
  if (count != 6) return 2;
  const auto number = [&](int i) { return std::strtoll(values[i], nullptr, 10); };
  const haul::PartialState state({true});
  haul::PipelineOptions options;
  options.num_chunks = number(4);
  haul::ModelOptions model;
  model.log = [](const std::string&) {};
  haul::Pipeline pipeline = haul::prepare_pipeline(values[1], options, model);
  const at::Tensor ids = at::ones({number(2), number(3)}, at::kLong);
  std::vector<double> seconds;
  for (long long round = 0; round <= number(5); ++round) {
    state.wait_for_everyone();
    const auto begin = std::chrono::steady_clock::now();
    pipeline(ids);
    state.wait_for_everyone();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (round > 0) seconds.push_back(took.count());  // the first one warms up
  }
  if (state.is_last_process()) {
    fmt::print("{{\"seconds\": [{}]}}\n", fmt::join(seconds, ", "));
  }
  return 0;
} catch (const haul::Error& error) {
  fmt::print(stderr, "haul: error: {}\n", error.what());
  return 1;
}
