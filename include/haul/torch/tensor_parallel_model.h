#pragma once

// Text from a model whose layers several processes compute together: each has some of the heads and
// a part of the MLP, with their weights and their KV cache, and what they give is added up. So a
// model needs less memory in each process, and one sequence goes faster than in one.
//
//   haul::TensorParallelModel parallel("./model");
//   haul::SharedWork work;
//   work.count = prompts.size();
//   work.task = [&](std::int64_t i) { return parallel.model().generate(prompts[i]).text; };
//   work.result = [](std::int64_t, const std::string& text) { std::cout << text << '\n'; };
//   parallel.run(work);
//
// Everything here is called by all processes of the group (haul::PartialState), from one thread.
// Sums have another order than in one process: the logits differ from its by rounding.

#include <cstdint>
#include <memory>
#include <string>

#include "haul/torch/model.h"
#include "haul/torch/share_work.h"

namespace haul {

class TensorParallelModel {
 public:
  // Loads this process's share; `options.part` and `options.sharing` are not for it. Throws what
  // load_model() throws, Error(kUnsupported) for an architecture whose layers cannot be shared, and
  // Error(kUsage) for heads, kv heads or an inner width that the number of processes does not
  // divide.
  explicit TensorParallelModel(const std::string& name, ModelOptions options = {});
  ~TensorParallelModel();
  TensorParallelModel(const TensorParallelModel&) = delete;
  TensorParallelModel& operator=(const TensorParallelModel&) = delete;

  // This process's share. Its forward(), embed(), classify() and fill_mask() are called by all
  // processes with the same arguments, and give the same to all. It generates inside of a task
  // alone.
  LoadedModel& model();

  // The main process does the tasks one after another, and chooses the tokens; the others compute
  // with it meanwhile and call none of the functions. Returns, and throws on the main process, as
  // share_work() does. A process that fails in a pass leaves the others with an Error(kResource) as
  // soon as it is gone: end the process.
  std::int64_t run(const SharedWork& work);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace haul
