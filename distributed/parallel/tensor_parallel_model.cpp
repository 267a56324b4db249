#include "haul/torch/tensor_parallel_model.h"

#include <utility>

#include <ATen/core/grad_mode.h>

#include "distributed/group/state.h"
#include "distributed/parallel/requests.h"
#include "haul/torch/partial_state.h"
#include "runtime/generate/load_share.h"
#include "runtime/generate/state.h"

namespace haul {

using Map = PipelineValue::Map;

struct TensorParallelModel::State {
  explicit State(LoadedModel its_model) : model(std::move(its_model)) {}

  PartialState processes;
  LoadedModel model;
  bool in_pass = false;  // the others are in the middle of a pass, or will be

  distributed::Group& group() const { return *processes.state().group; }

  void tell_others(const Map& request) const {
    for (int other = 1; other < group().size(); ++other) {
      distributed::send(group(), other, {{request}, {}, {}});
    }
  }
};

namespace {

class SharedRunner final : public distributed::AskingRunner {
 public:
  explicit SharedRunner(TensorParallelModel::State& state)
      : AskingRunner(state.model.state(), 0,
                     [&state](const Map& request) { state.tell_others(request); }),
        state_(state) {}

  at::Tensor forward(models::Inputs inputs) override {
    state_.in_pass = true;
    ask_pass(inputs, {});
    at::Tensor logits = pass(inputs);
    state_.in_pass = false;
    return logits;
  }

 private:
  TensorParallelModel::State& state_;
};

std::int64_t do_tasks(const SharedWork& work) {
  std::int64_t done = 0;
  while (done < work.count && !(work.cancel != nullptr && work.cancel->load())) {
    work.result(done, work.task(done));
    ++done;
    if (work.progress) work.progress(done);
  }
  return done;
}

std::int64_t lead(TensorParallelModel::State& state, const SharedWork& work) {
  auto& make_runner = state.model.state().make_runner;
  make_runner = [&state]() -> std::unique_ptr<runtime::PassRunner> {
    return std::make_unique<SharedRunner>(state);
  };
  const auto end = [&] {
    make_runner = nullptr;
    state.tell_others(distributed::request(distributed::kEnd, 0));
    state.group().finish_sends();
  };
  std::int64_t done = 0;
  try {
    done = do_tasks(work);
  } catch (...) {
    if (!state.in_pass) end();  // else they wait for a sum, and nothing but the end reaches them
    throw;
  }
  end();
  return done;
}

void follow(TensorParallelModel::State& state) {
  const at::NoGradGuard no_gradients;
  distributed::AskedPasses passes(state.model.state());
  distributed::Receiver main(state.group(), 0, state.processes.device());
  for (;;) {
    distributed::Message message = main.receive();
    if (distributed::what_of(message) == distributed::kEnd) return;
    main.expect();
    passes.perform(&std::get<Map>(message.value.value));
  }
}

}  // namespace

TensorParallelModel::TensorParallelModel(const std::string& name, ModelOptions options) {
  const PartialState processes;
  options.sharing = nullptr;  // they have different weights of the same names
  runtime::ModelShare share{{processes.process_index(), processes.num_processes()}, {}};
  // In F32, so that a sum of many is as good as that of one process.
  share.sum = [processes](const at::Tensor& part) {
    return processes.state().group->sum(part.to(at::kFloat)).to(part.scalar_type());
  };
  state_ = std::make_unique<State>(runtime::load_share(name, options, share));
}
TensorParallelModel::~TensorParallelModel() = default;

LoadedModel& TensorParallelModel::model() {
  return state_->model;
}

std::int64_t TensorParallelModel::run(const SharedWork& work) {
  if (!state_->processes.use_distributed()) return share_work(state_->processes, work);
  if (state_->processes.is_main_process()) return lead(*state_, work);
  follow(*state_);
  return 0;
}

}  // namespace haul
