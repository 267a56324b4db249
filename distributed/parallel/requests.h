#pragma once

// What the main process, which generates, asks of the others, which compute with it: they do it in
// the order in which it comes. One thread.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "distributed/parallel/message.h"
#include "haul/torch/model.h"
#include "haul/torch/pipeline_value.h"
#include "models/families/model.h"
#include "runtime/generate/pass_runner.h"

namespace haul::distributed {

// Each is for one group of sequences, which has a number.
constexpr const char* kBegin = "begin";      // with the capacity
constexpr const char* kPass = "pass";        // with the inputs and the hidden states
constexpr const char* kRepeat = "repeat";    // so many times
constexpr const char* kReorder = "reorder";  // by these rows
constexpr const char* kEnd = "end";          // of all

PipelineValue::Map request(const char* what, std::int64_t group);
std::string what_of(const Message& message);

// On the main process: the passes of a group of sequences, with all else asked of the others, too.
class AskingRunner : public runtime::PassRunner {
 public:
  using Ask = std::function<void(PipelineValue::Map)>;

  AskingRunner(LoadedModel::State& state, std::int64_t group, Ask ask)
      : group_(group), ask_(std::move(ask)), passes_(state) {}

  void begin(std::int64_t capacity) override;
  void repeat(std::int64_t times) override;
  void reorder(const at::Tensor& rows) override;

 protected:
  // `x` is what the others go on from; undefined: they begin with the ids.
  void ask_pass(const models::Inputs& inputs, const at::Tensor& x);
  at::Tensor pass(const models::Inputs& inputs) { return passes_.forward(inputs, {}); }
  std::int64_t group() const { return group_; }

 private:
  void ask(const char* what, const PipelineValue& with);

  std::int64_t group_;
  Ask ask_;
  runtime::LayerPasses passes_;
};

// On the others: the passes of all groups.
class AskedPasses {
 public:
  explicit AskedPasses(LoadedModel::State& state) : state_(state) {}

  // After a pass, what it gave is the request's "x".
  void perform(PipelineValue::Map* request);

 private:
  void answer(PipelineValue::Map* request);

  LoadedModel::State& state_;
  std::map<std::int64_t, runtime::LayerPasses> groups_;
};

}  // namespace haul::distributed
