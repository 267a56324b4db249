#pragma once

// Text from a model that is cut into stages, one a process, with all of them busy: several groups
// of sequences are generated at once, and while one is in a stage, the others are in the other
// stages.
//
//   haul::PipelinedModel pipelined("./model");
//   haul::SharedWork work;
//   work.count = prompts.size();
//   work.task = [&](std::int64_t i) { return pipelined.model().generate(prompts[i]).text; };
//   work.result = [](std::int64_t, const std::string& text) { std::cout << text << '\n'; };
//   pipelined.run(work);
//
// Everything here is called by all processes of the group (haul::PartialState), from one thread.
// The answers are bit for bit those of one process.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "haul/torch/model.h"
#include "haul/torch/share_work.h"

namespace haul {

class PipelinedModel {
 public:
  // Loads this process's stage: stages of equal time, or those that begin with `split_points`.
  // `options.batch` is that of each group. Throws what load_model() and ModelOptions::part say.
  explicit PipelinedModel(const std::string& name, ModelOptions options = {},
                          const std::vector<std::string>& split_points = {});
  ~PipelinedModel();
  PipelinedModel(const PipelinedModel&) = delete;
  PipelinedModel& operator=(const PipelinedModel&) = delete;

  // This process's part. It generates inside of a task alone.
  LoadedModel& model();

  // The main process does the tasks, one more at once than there are stages: when one waits for the
  // other stages, the next goes on. One at a time runs, so that tasks need no locks. The other
  // processes compute their stages meanwhile and call none of the functions. Returns, and throws on
  // the main process, as share_work() does; what another process fails at, the task throws that
  // waits for it.
  std::int64_t run(const SharedWork& work);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace haul
