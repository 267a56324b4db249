#pragma once

// Functions that take turns in one process: one goes on at a time, until it waits for an answer.
// Answers come in the order in which they were waited for, and one is only fetched when nobody can
// go on without. Each function has a thread of its own, but all together are as one: what they
// share needs no lock.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "haul/torch/pipeline_value.h"

namespace haul::distributed {

class Turns {
 public:
  // `fetch` gives the next answer; what it throws, the one who waits for that answer throws.
  explicit Turns(std::function<PipelineValue()> fetch) : fetch_(std::move(fetch)) {}

  // Runs body(0) to body(count - 1) to their ends, and throws the first of what they throw.
  void run(std::size_t count, const std::function<void(std::size_t)>& body);

  // From within a body: the next answer that is this body's.
  PipelineValue wait(std::size_t who);
  // From within a body: its number.
  std::size_t current();

 private:
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

  void give(std::size_t who);
  void await_turn(std::unique_lock<std::mutex>& lock, std::size_t who);

  std::function<PipelineValue()> fetch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t turn_ = kNobody;  // whose it is; nobody's: run() decides
  std::deque<std::size_t> ready_;
  std::deque<std::size_t> waiting_;
  struct Answer {
    PipelineValue value;
    std::exception_ptr error;
  };
  std::vector<Answer> answers_;
  std::exception_ptr failure_;
};

}  // namespace haul::distributed
