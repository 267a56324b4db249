#pragma once

// One model over several processes, each with a run of its blocks and their weights alone. A batch
// goes through in chunks, so that all of them work at once.
//
//   haul::Pipeline pipeline = haul::prepare_pipeline("gpt2");             // haul's own families
//   std::optional<at::Tensor> logits = pipeline(ids);                     // on the last process
//
//   haul::PipelineBlocks blocks(model);                                   // a module of one's own
//   blocks.add("embed", model->embed);
//   for (int i = 0; i < 12; ++i) blocks.add("layers." + std::to_string(i), model->layer(i));
//   blocks.add("head", [&](at::Tensor x) { return model->head(x).softmax(-1); });
//   haul::Pipeline pipeline = haul::prepare_pipeline(blocks);
//
// Everything here is called by all processes of the group (haul::PartialState), from one thread;
// one process alone is a pipeline of one stage. The result is bit for bit that of one process that
// computes the same chunks.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "haul/bytes.h"
#include "haul/torch/dispatch.h"
#include "haul/torch/model.h"
#include "haul/torch/pipeline_value.h"

namespace haul {

struct PipelineOptions {
  // The blocks that stages begin with, but the first. Empty: stages of equal time, by the planner.
  std::vector<std::string> split_points = {};
  // Parts that a batch is cut into along its first dimension, as even as can be; a batch of fewer
  // rows makes fewer. 0: as many as there are processes.
  std::int64_t num_chunks = 0;
  // The output comes to all processes; otherwise to the last alone.
  bool gather_output = false;
};

// A model as a sequence of blocks, each of which takes what the one before it gives.
class PipelineBlocks {
 public:
  // Names of blocks are those of modules in the model, which is borrowed until it is prepared.
  explicit PipelineBlocks(const ModelRef& model) : model_(model) {}

  // A module with one forward(), or a function. Its arguments and results are of the types that
  // pipeline_value.h knows; several arguments are taken from a tuple, or a list of as many. What it
  // captures lives as long as the pipeline.
  template <typename Block>
  PipelineBlocks& add(std::string name, Block block) {
    names_.push_back(std::move(name));
    if constexpr (requires { typename Block::ContainedType; }) {
      using Contained = typename Block::ContainedType;
      using Signature = detail::Signature<decltype(&Contained::forward)>;
      forwards_.push_back([block](const PipelineValue& input) mutable {
        return call<Signature>(
            [&](auto&&... values) { return block->forward(std::move(values)...); }, input);
      });
    } else {
      using Signature = detail::Signature<decltype(&Block::operator())>;
      forwards_.push_back([block = std::move(block)](const PipelineValue& input) mutable {
        return call<Signature>(block, input);
      });
    }
    return *this;
  }

  using Forward = std::function<PipelineValue(const PipelineValue&)>;
  const ModelRef& model() const { return model_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<Forward>& forwards() const { return forwards_; }

 private:
  template <typename Signature, typename Function>
  static PipelineValue call(Function&& function, const PipelineValue& input) {
    return detail::ValueOf<typename Signature::Result>::to(
        std::apply(function, detail::arguments_from<typename Signature::Arguments>(input)));
  }

  ModelRef model_;
  std::vector<std::string> names_;
  std::vector<Forward> forwards_;
};

class Pipeline {
 public:
  // A pass over a batch. The inputs of the first process count, in which every tensor has a row for
  // each element of the batch, or no dimension at all; the others may give anything. What each
  // chunk gives is put together again, tensor by tensor. Shapes may differ from pass to pass.
  //
  // What a block throws is thrown by its process, and by all that come behind it; the pipeline can
  // be used again. A process that ends is an Error(kResource) of the others.
  template <typename Output = at::Tensor, typename... Inputs>
  std::optional<Output> operator()(const Inputs&... inputs) {
    const std::optional<PipelineValue> output = run(detail::value_from(inputs...));
    if (!output) return std::nullopt;
    return detail::ValueOf<Output>::from(*output);
  }

  // The blocks of this process.
  const std::vector<std::string>& blocks() const;
  // Of the checkpoint's weights that this process has read.
  Bytes bytes_read() const;

  struct State;
  explicit Pipeline(std::shared_ptr<State> state);

 private:
  std::optional<PipelineValue> run(const PipelineValue& input);

  std::shared_ptr<State> state_;
};

// The model has its values. Throws Error(kUsage) for split points that are no blocks or do not make
// a stage for each process, for more processes than blocks, and for blocks that the model does not
// have.
Pipeline prepare_pipeline(const PipelineBlocks& blocks, const PipelineOptions& options = {});
// The model has none yet (haul::EmptyWeights): each process loads those of its own blocks.
Pipeline load_pipeline(const PipelineBlocks& blocks, const std::filesystem::path& checkpoint,
                       const PipelineOptions& options = {}, const LoadOptions& load = {});
// A model of haul's families by its name, as load_model() takes it. Its inputs are ids (B, T) and,
// where there is padding, beside them a bool tensor (B, T) that is false there; its output is what
// LoadedModel::forward() gives. Throws Error(kUnsupported) for a model that cannot be cut.
Pipeline prepare_pipeline(const std::string& name, const PipelineOptions& options = {},
                          ModelOptions model = {});

}  // namespace haul
