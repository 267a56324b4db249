#pragma once

// What a LoadedModel holds.

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/json.h"
#include "haul/torch/model.h"
#include "models/families/model.h"
#include "runtime/generate/generation_config.h"
#include "runtime/generate/kv_room.h"
#include "runtime/generate/pass_runner.h"
#include "runtime/generate/replayed_pass.h"
#include "runtime/generate/sentence_config.h"

namespace haul {

struct LoadedModel::State {
  std::shared_ptr<models::Model> model;
  at::Device device = at::kCPU;             // of its first layer, where inputs are needed
  std::shared_future<Tokenizer> tokenizer;  // read beside the weights; fails only when it is used
  std::string name;
  std::filesystem::path folder;  // where the model's files lie
  core::Json config;
  std::function<void(const std::string&)> log;
  Plan plan;
  Description description;
  runtime::GenerationConfig generation;
  std::int64_t context = 0;
  std::vector<std::int64_t> windows;  // by layer: tokens that it looks at; 0: all
  std::unique_ptr<runtime::KvRoom> kv_room;
  std::vector<runtime::Reservation> activations;    // set aside, by device
  models::Layers layers;                            // that are loaded
  std::unique_ptr<runtime::ReplayedPass> replayed;  // where tokens' passes are recorded
  Bytes bytes_read = 0;
  // For each group of sequences that is generated. Empty: make_local_runner().
  std::function<std::unique_ptr<runtime::PassRunner>()> make_runner;
  double load_seconds = 0;
  GenerateFigures figures;
  std::optional<runtime::SentenceConfig> sentence;  // read when it is first needed

  // One through the layers that are loaded. `x` is what those before them gave, undefined for the
  // first.
  at::Tensor pass(const models::Inputs& inputs, const at::Tensor& x) const {
    return layers.end > 0 ? model->forward_part(inputs, layers, x) : model->forward(inputs);
  }
  const Dimensions& dimensions() const { return *description.dimensions; }
};

}  // namespace haul
