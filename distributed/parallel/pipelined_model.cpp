#include "haul/torch/pipelined_model.h"

#include <functional>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "distributed/group/state.h"
#include "distributed/parallel/requests.h"
#include "distributed/parallel/stage.h"
#include "distributed/parallel/turns.h"
#include "haul/torch/partial_state.h"
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

// The passes of one group of sequences, begun here and ended by the last process.
class PipelineRunner final : public distributed::AskingRunner {
 public:
  // Calls `asked` for each pass. Once `failed` is true, the next pass ends in an Error.
  PipelineRunner(PipelinedModel::State& state, distributed::Turns& turns, const bool& failed,
                 std::function<void()> asked)
      : AskingRunner(state.model.state(), static_cast<std::int64_t>(turns.current()),
                     [&state](Map request) {
                       distributed::send(state.group(), 1, {{std::move(request)}, {}, {}});
                     }),
        turns_(turns),
        failed_(failed),
        asked_(std::move(asked)) {}

  at::Tensor forward(models::Inputs inputs) override {
    ask_pass(inputs, pass(inputs));
    asked_();
    const PipelineValue logits = turns_.wait(static_cast<std::size_t>(group()));
    if (failed_) throw Error(ErrorKind::kResource, "another task has failed");
    return std::get<at::Tensor>(logits.value);
  }

 private:
  distributed::Turns& turns_;
  const bool& failed_;
  std::function<void()> asked_;
};

// What a process that is not the main one does. After a failure it answers every pass with that.
class Server {
 public:
  explicit Server(PipelinedModel::State& state)
      : state_(state),
        passes_(state.model.state()),
        before_(state.group(), state.rank() - 1, state.processes.device()) {}

  void run() {
    const at::NoGradGuard no_gradients;
    for (bool end = false; !end;) {
      Message message = before_.receive();
      if (message.error && !failure_) failure_ = message.error;
      end = !message.error && distributed::what_of(message) == distributed::kEnd;
      if (!end) before_.expect();
      answer(std::move(message));
    }
    state_.group().finish_sends();
    if (own_) std::rethrow_exception(own_);
  }

 private:
  void answer(Message message) {
    const bool is_pass = message.error || distributed::what_of(message) == distributed::kPass;
    if (!failure_) {
      try {
        passes_.perform(&std::get<Map>(message.value.value));
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

  PipelinedModel::State& state_;
  distributed::AskedPasses passes_;
  distributed::Receiver before_;
  std::optional<Error> failure_;
  std::exception_ptr own_;  // where it happened here
};

// The tasks on the main process, several in turns.
class Tasks {
 public:
  Tasks(PipelinedModel::State& state, const SharedWork& work)
      : state_(state),
        work_(work),
        answers_(state.group(), state.group().size() - 1, at::kCPU),
        turns_([this] { return receive_logits(); }) {}

  std::int64_t run() {
    const auto stages = static_cast<std::size_t>(state_.group().size());
    state_.model.state().make_runner = [this]() -> std::unique_ptr<runtime::PassRunner> {
      return std::make_unique<PipelineRunner>(state_, turns_, failed_, [this] {
        ++asked_;
        answers_.expect();
      });
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
    Message message = answers_.receive();
    if (--asked_ > 0) answers_.expect();
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
    distributed::send(state_.group(), 1, {{distributed::request(distributed::kEnd, 0)}, {}, {}});
    state_.group().finish_sends();
  }

  PipelinedModel::State& state_;
  const SharedWork& work_;
  distributed::Receiver answers_;
  std::int64_t asked_ = 0;  // passes whose answers have not come
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
