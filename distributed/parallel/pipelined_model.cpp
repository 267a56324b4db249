#include "haul/torch/pipelined_model.h"

#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "distributed/group/state.h"
#include "distributed/parallel/message.h"
#include "distributed/parallel/stage.h"
#include "distributed/parallel/turns.h"
#include "haul/torch/partial_state.h"
#include "runtime/generate/pass_runner.h"
#include "runtime/generate/state.h"

namespace haul {

using distributed::Message;
using Map = PipelineValue::Map;

struct PipelinedModel::State {
  explicit State(LoadedModel its_model) : model(std::move(its_model)) {}

  PartialState processes;
  LoadedModel model;

  distributed::Group& group() const { return *processes.state().group; }
  int rank() const { return group().rank(); }
  bool is_last() const { return rank() + 1 == group().size(); }
};

namespace {

// What the main process asks of the others, for one group of sequences: they do it in this order.
constexpr const char* kBegin = "begin";      // with the capacity
constexpr const char* kPass = "pass";        // with the inputs and the hidden states
constexpr const char* kRepeat = "repeat";    // so many times
constexpr const char* kReorder = "reorder";  // by these rows
constexpr const char* kEnd = "end";          // of all

Map request(const char* what, std::size_t group) {
  return {{"what", {std::string(what)}}, {"group", {static_cast<std::int64_t>(group)}}};
}

at::Tensor tensor_in(const Map& map, const char* name) {
  return std::get<at::Tensor>(map.at(name).value);
}

Map with_inputs(Map map, const models::Inputs& inputs, const at::Tensor& x) {
  map["ids"] = {inputs.ids};
  map["positions"] = {inputs.positions};
  map["attended"] = {inputs.attended};
  map["last"] = {inputs.last};
  map["x"] = {x};
  return map;
}

// The passes of one group of sequences, begun here and ended by the last process.
class PipelineRunner final : public runtime::PassRunner {
 public:
  // Once `failed` is true, the next pass ends in an Error.
  PipelineRunner(PipelinedModel::State& state, distributed::Turns& turns, const bool& failed)
      : state_(state),
        turns_(turns),
        failed_(failed),
        group_(turns.current()),
        passes_(state.model.state()) {}

  void begin(std::int64_t capacity) override {
    passes_.begin(capacity);
    ask(kBegin, {capacity});
  }
  at::Tensor forward(models::Inputs inputs) override {
    const at::Tensor x = passes_.forward(inputs, {});
    distributed::send(state_.group(), 1,
                      {{with_inputs(request(kPass, group_), inputs, x)}, {}, {}});
    const PipelineValue logits = turns_.wait(group_);
    if (failed_) throw Error(ErrorKind::kResource, "another task has failed");
    return std::get<at::Tensor>(logits.value);
  }
  void repeat(std::int64_t times) override {
    passes_.repeat(times);
    ask(kRepeat, {times});
  }
  void reorder(const at::Tensor& rows) override {
    passes_.reorder(rows);
    ask(kReorder, {rows});
  }

 private:
  void ask(const char* what, const PipelineValue& with) {
    Map map = request(what, group_);
    map["with"] = with;
    distributed::send(state_.group(), 1, {{std::move(map)}, {}, {}});
  }

  PipelinedModel::State& state_;
  distributed::Turns& turns_;
  const bool& failed_;
  std::size_t group_;
  runtime::LayerPasses passes_;
};

// What a process that is not the main one does. After a failure it answers every pass with that.
class Server {
 public:
  explicit Server(PipelinedModel::State& state) : state_(state) {}

  void run() {
    const at::NoGradGuard no_gradients;
    for (bool end = false; !end;) {
      Message message =
          distributed::receive(state_.group(), state_.rank() - 1, state_.processes.device());
      if (message.error && !failure_) failure_ = message.error;
      end = !message.error && what_of(message) == kEnd;
      answer(std::move(message));
    }
    state_.group().finish_sends();
    if (own_) std::rethrow_exception(own_);
  }

 private:
  static std::string what_of(const Message& message) {
    return std::get<std::string>(std::get<Map>(message.value.value).at("what").value);
  }

  void answer(Message message) {
    const bool is_pass = message.error || what_of(message) == kPass;
    if (!failure_) {
      try {
        perform(std::get<Map>(message.value.value));
      } catch (...) {
        own_ = std::current_exception();
        failure_ = distributed::as_error(state_.rank());
      }
    }
    if (is_pass && failure_) message.error = failure_;
    if (!state_.is_last()) {
      distributed::send(state_.group(), state_.rank() + 1, message);
    } else if (is_pass) {
      if (!message.error) message.value = std::get<Map>(message.value.value).at("x");
      distributed::send(state_.group(), 0, message);
    }
  }

  void perform(Map& map) {
    const auto group = std::get<std::int64_t>(map.at("group").value);
    const std::string& what = std::get<std::string>(map.at("what").value);
    if (what == kEnd) return;
    runtime::LayerPasses& passes = groups_.try_emplace(group, state_.model.state()).first->second;
    if (what == kBegin) passes.begin(std::get<std::int64_t>(map.at("with").value));
    if (what == kRepeat) passes.repeat(std::get<std::int64_t>(map.at("with").value));
    if (what == kReorder) passes.reorder(tensor_in(map, "with"));
    if (what != kPass) return;
    models::Inputs inputs{tensor_in(map, "ids")};
    inputs.positions = tensor_in(map, "positions");
    inputs.attended = tensor_in(map, "attended");
    inputs.last = std::get<std::int64_t>(map.at("last").value);
    map["x"] = {passes.forward(inputs, tensor_in(map, "x").to(state_.model.state().device))};
  }

  PipelinedModel::State& state_;
  std::map<std::int64_t, runtime::LayerPasses> groups_;
  std::optional<Error> failure_;
  std::exception_ptr own_;  // where it happened here
};

// The tasks on the main process, several in turns.
class Tasks {
 public:
  Tasks(PipelinedModel::State& state, const SharedWork& work)
      : state_(state), work_(work), turns_([this] { return receive_logits(); }) {}

  std::int64_t run() {
    const auto stages = static_cast<std::size_t>(state_.group().size());
    state_.model.state().make_runner = [this]() -> std::unique_ptr<runtime::PassRunner> {
      return std::make_unique<PipelineRunner>(state_, turns_, failed_);
    };
    try {
      turns_.run(stages + 1, [&](std::size_t) { take_tasks(); });
    } catch (...) {
      end();
      throw;
    }
    end();
    return shown_;
  }

 private:
  PipelineValue receive_logits() {
    Message message = distributed::receive(state_.group(), state_.group().size() - 1, at::kCPU);
    if (message.error) throw Error(*message.error);
    return std::move(message.value);
  }

  void take_tasks() {
    while (next_ < work_.count && !failed_ && !(work_.cancel != nullptr && work_.cancel->load())) {
      const std::int64_t task = next_++;
      try {
        results_[task] = work_.task(task);
      } catch (...) {
        failed_ = true;
        throw;
      }
      ++done_;
      show();
      if (work_.progress) work_.progress(done_);
    }
  }

  void show() {
    for (auto next = results_.find(shown_); next != results_.end(); next = results_.find(shown_)) {
      work_.result(shown_++, next->second);
      results_.erase(next);
    }
  }

  void end() {
    state_.model.state().make_runner = nullptr;
    distributed::send(state_.group(), 1, {{request(kEnd, 0)}, {}, {}});
    state_.group().finish_sends();
  }

  PipelinedModel::State& state_;
  const SharedWork& work_;
  distributed::Turns turns_;
  std::int64_t next_ = 0;
  std::int64_t done_ = 0;
  std::int64_t shown_ = 0;
  bool failed_ = false;
  std::map<std::int64_t, std::string> results_;  // not shown yet
};

}  // namespace

PipelinedModel::PipelinedModel(const std::string& name, ModelOptions options,
                               const std::vector<std::string>& split_points) {
  const PartialState processes;
  options.part = {static_cast<std::size_t>(processes.process_index()),
                  static_cast<std::size_t>(processes.num_processes()), split_points};
  if (processes.use_distributed()) options.batch *= processes.num_processes() + 1;
  state_ = std::make_unique<State>(load_model(name, options));
}
PipelinedModel::~PipelinedModel() = default;

LoadedModel& PipelinedModel::model() {
  return state_->model;
}

std::int64_t PipelinedModel::run(const SharedWork& work) {
  if (!state_->processes.use_distributed()) return share_work(state_->processes, work);
  if (state_->processes.is_main_process()) return Tasks(*state_, work).run();
  Server(*state_).run();
  return 0;
}

}  // namespace haul
