#include "haul/torch/pipeline.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "core/place/stages.h"
#include "distributed/group/state.h"
#include "distributed/parallel/chunks.h"
#include "distributed/parallel/message.h"
#include "distributed/parallel/stage.h"
#include "haul/error.h"
#include "haul/torch/partial_state.h"

namespace haul {

using distributed::Message;

struct Pipeline::State {
  State(distributed::PipelineStage its_stage, const PipelineOptions& its_options)
      : stage(std::move(its_stage)), options(its_options) {}

  PartialState processes;
  distributed::PipelineStage stage;
  PipelineOptions options;

  distributed::Group& group() const { return *processes.state().group; }
  int rank() const { return group().rank(); }
  bool is_first() const { return rank() == 0; }
  bool is_last() const { return rank() + 1 == group().size(); }
};

namespace {

// One batch through this process's stage. A failure goes along with the chunks, so that nobody
// waits for what does not come.
class Pass {
 public:
  explicit Pass(Pipeline::State& state) : state_(state), group_(state.group()) {}

  std::optional<PipelineValue> run(const PipelineValue& input) {
    if (state_.is_first()) {
      feed(input);
    } else {
      distributed::Receiver before(group_, state_.rank() - 1, state_.processes.device());
      bool last = false;
      while (!last) {
        const Message message = before.receive();
        last = message.last;
        if (!last) before.expect();
        pass_on(message);
      }
    }
    if (state_.is_last()) join();
    if (state_.options.gather_output) share();
    group_.finish_sends();
    if (own_) std::rethrow_exception(own_);
    if (failure_) throw Error(*failure_);
    return output_;
  }

 private:
  void feed(const PipelineValue& input) {
    std::vector<PipelineValue> chunks;
    const std::int64_t wanted = state_.options.num_chunks;
    try {
      chunks = distributed::split_rows(input, wanted > 0 ? wanted : group_.size());
    } catch (...) {
      note_failure();
      pass_on({{}, failure_, true});
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      pass_on({std::move(chunks[i]), std::nullopt, i + 1 == chunks.size()});
    }
  }

  // From the process before to the one behind.
  void pass_on(const Message& message) {
    if (message.error && !failure_) failure_ = message.error;
    PipelineValue output;
    if (!failure_) {
      try {
        output = state_.stage.forward(message.value);
      } catch (...) {
        note_failure();
      }
    }
    if (!state_.is_last()) {
      distributed::send(group_, state_.rank() + 1, {std::move(output), failure_, message.last});
    } else if (!failure_) {
      outputs_.push_back(std::move(output));
    }
  }

  void note_failure() {
    own_ = std::current_exception();
    failure_ = distributed::as_error(state_.rank());
  }

  void join() {
    if (failure_) return;
    try {
      output_ = distributed::join_rows(outputs_);
    } catch (...) {
      note_failure();
    }
  }

  // What the last process has, for all.
  void share() {
    if (!state_.is_last()) {
      Message message =
          distributed::Receiver(group_, group_.size() - 1, state_.processes.device()).receive();
      if (message.error && !failure_) failure_ = message.error;
      if (!message.error) output_ = std::move(message.value);
      return;
    }
    for (int to = 0; to + 1 < group_.size(); ++to) {
      distributed::send(group_, to, {output_.value_or(PipelineValue()), failure_, true});
    }
  }

  Pipeline::State& state_;
  distributed::Group& group_;
  std::vector<PipelineValue> outputs_;
  std::optional<PipelineValue> output_;
  std::optional<Error> failure_;
  std::exception_ptr own_;  // where it happened here
};

}  // namespace

Pipeline::Pipeline(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::optional<PipelineValue> Pipeline::run(const PipelineValue& input) {
  const at::NoGradGuard no_gradients;
  return Pass(*state_).run(input);
}

const std::vector<std::string>& Pipeline::blocks() const {
  return state_->stage.blocks;
}
Bytes Pipeline::bytes_read() const {
  return state_->stage.bytes_read;
}

Pipeline prepare_pipeline(const PipelineBlocks& blocks, const PipelineOptions& options) {
  return Pipeline(std::make_shared<Pipeline::State>(
      distributed::stage_of(blocks, PartialState(), options.split_points), options));
}

Pipeline load_pipeline(const PipelineBlocks& blocks, const std::filesystem::path& checkpoint,
                       const PipelineOptions& options, const LoadOptions& load) {
  distributed::PipelineStage stage =
      distributed::stage_of(blocks, PartialState(), options.split_points);
  LoadOptions own = load;
  own.only = stage.blocks;
  stage.bytes_read = load_checkpoint_in_model(blocks.model(), checkpoint, MapMode::kAuto, own).read;
  return Pipeline(std::make_shared<Pipeline::State>(std::move(stage), options));
}

Pipeline prepare_pipeline(const std::string& name, const PipelineOptions& options,
                          ModelOptions model) {
  return Pipeline(std::make_shared<Pipeline::State>(
      distributed::stage_of(name, PartialState(), options.split_points, std::move(model)),
      options));
}

namespace detail {

void refuse_value(const PipelineValue& value, const char* wanted) {
  constexpr const char* kKinds[] = {"nothing",  "a tensor", "a flag", "a whole number",
                                    "a number", "a text",   "a list", "a map"};
  throw Error(ErrorKind::kUsage, fmt::format("a block of the pipeline wants {}, and gets {}",
                                             wanted, kKinds[value.value.index()]));
}

const PipelineValue::List& list_of(const PipelineValue& value, std::size_t count) {
  const auto& list = alternative<PipelineValue::List>(value, "a list");
  if (list.size() == count) return list;
  throw Error(ErrorKind::kUsage, fmt::format("a block of the pipeline wants {} values, and gets {}",
                                             count, list.size()));
}

}  // namespace detail
}  // namespace haul
