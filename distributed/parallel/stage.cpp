#include "distributed/parallel/stage.h"

#include <memory>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "core/place/stages.h"
#include "haul/error.h"
#include "haul/profile.h"
#include "runtime/dispatch/lack_of_memory.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/dispatch/weight_store.h"
#include "runtime/generate/input_ids.h"
#include "runtime/generate/state.h"

namespace haul::distributed {
namespace {

using Map = PipelineValue::Map;

at::Tensor tensor_in(const Map& map, const char* name) {
  const auto found = map.find(name);
  return found == map.end() ? at::Tensor() : std::get<at::Tensor>(found->second.value);
}

// Between its stages pass the inputs and the hidden states "x".
class FamilyStage {
 public:
  explicit FamilyStage(LoadedModel model)
      : model_(std::make_shared<LoadedModel>(std::move(model))) {}

  PipelineValue operator()(const PipelineValue& input) const {
    const LoadedModel::State& state = model_->state();
    Map map = state.layers.begin == 0 ? from_user(input, state)
                                      : detail::alternative<Map>(input, "a map");
    models::Inputs inputs{tensor_in(map, "ids")};
    inputs.attended = tensor_in(map, "attended");
    if (inputs.attended.defined()) {
      inputs.positions = (inputs.attended.to(at::kLong).cumsum(1) - 1).clamp_min(0);
    }
    const bool is_last = state.layers.end == state.model->layers().size();
    at::Tensor x = tensor_in(map, "x");
    x = runtime::telling_lack_of_memory(state.name, state.plan.devices, [&] {
      if (x.defined()) x = x.to(state.device);
      const at::Tensor out = state.model->forward_part(inputs.to(state.device), state.layers, x);
      return is_last ? out.to(at::kCPU, at::kFloat) : out;
    });
    if (is_last) return {x};
    map["x"] = {x};
    return {std::move(map)};
  }

 private:
  static Map from_user(const PipelineValue& input, const LoadedModel::State& state) {
    Map map;
    if (std::holds_alternative<at::Tensor>(input.value)) {
      map["ids"] = input;
    } else {
      const PipelineValue::List& list = detail::list_of(input, 2);
      map["ids"] = list[0];
      map["attended"] = list[1];
    }
    runtime::check_ids(detail::ValueOf<at::Tensor>::from(map["ids"]), state);
    return map;
  }

  std::shared_ptr<LoadedModel> model_;
};

}  // namespace

Error as_error(int process) {
  const std::string context = fmt::format("process {} of the pipeline", process);
  try {
    throw;
  } catch (const Error& error) {
    Error copy = error;
    copy.add_context(context);
    return copy;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return {ErrorKind::kInternal, context + ": " + text.substr(0, text.find('\n'))};
  } catch (const std::exception& error) {
    return {ErrorKind::kInternal, context + ": " + error.what()};
  }
}

PipelineStage stage_of(const PipelineBlocks& blocks, const PartialState& processes,
                       const std::vector<std::string>& split_points) {
  const auto count = static_cast<std::size_t>(processes.num_processes());
  const Description description = runtime::read_model(blocks.model()).description;
  const std::vector<core::Stage> stages =
      split_points.empty()
          ? core::even_stages(core::block_seconds(description, blocks.names(), load_profile(),
                                                  processes.device().is_cuda(), 1),
                              count)
          : core::named_stages(blocks.names(), split_points, count);
  const core::Stage& mine = stages[static_cast<std::size_t>(processes.process_index())];
  PipelineStage stage;
  std::vector<PipelineBlocks::Forward> forwards;
  for (std::size_t i = mine.begin; i < mine.end; ++i) {
    stage.blocks.push_back(blocks.names()[i]);
    forwards.push_back(blocks.forwards()[i]);
  }
  stage.forward = [forwards = std::move(forwards)](const PipelineValue& input) {
    PipelineValue value = input;
    for (const PipelineBlocks::Forward& forward : forwards) value = forward(value);
    return value;
  };
  return stage;
}

PipelineStage stage_of(const std::string& name, const PartialState& processes,
                       const std::vector<std::string>& split_points, ModelOptions options) {
  options.part = {static_cast<std::size_t>(processes.process_index()),
                  static_cast<std::size_t>(processes.num_processes()), split_points};
  LoadedModel model = load_model(name, options);
  PipelineStage stage;
  stage.blocks = model.layers();
  stage.bytes_read = model.bytes_read();
  stage.forward = FamilyStage(std::move(model));
  return stage;
}

}  // namespace haul::distributed
