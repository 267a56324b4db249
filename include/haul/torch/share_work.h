#pragma once

// Tasks of unequal length for all processes: each is done by the process that is free next, and the
// results come to the main process in the order of the tasks.
//
//   haul::SharedWork work;
//   work.count = 100;
//   work.task = [&](std::int64_t i) { return answer(prompts[i]); };
//   work.result = [](std::int64_t, const std::string& text) { std::cout << text << '\n'; };
//   haul::share_work(haul::PartialState(), work);

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "haul/torch/partial_state.h"

namespace haul {

struct SharedWork {
  std::int64_t count = 0;
  std::function<std::string(std::int64_t)> task;
  // On the main process: each result once it and all before it are there.
  std::function<void(std::int64_t, const std::string&)> result;
  // On the main process, after each of its own tasks: how many all have done. May be empty.
  std::function<void(std::int64_t)> progress;
  // Becomes true: this process begins no more tasks.
  const std::atomic<bool>* cancel = nullptr;
};

// Called by all processes, and returns when all have ended. Gives, on the main process, how many
// results there were: all, unless cancelled. What a task throws comes out here; the other processes
// then end in an Error(kResource) as soon as this one is gone.
std::int64_t share_work(const PartialState& state, const SharedWork& work);

}  // namespace haul
