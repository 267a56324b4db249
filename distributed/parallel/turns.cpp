#include "distributed/parallel/turns.h"

#include <thread>
#include <utility>

namespace haul::distributed {

void Turns::await_turn(std::unique_lock<std::mutex>& lock, std::size_t who) {
  changed_.wait(lock, [&] { return turn_ == who; });
}

void Turns::give(std::size_t who) {
  turn_ = who;
  changed_.notify_all();
}

void Turns::run(std::size_t count, const std::function<void(std::size_t)>& body) {
  answers_.assign(count, {});
  failure_ = nullptr;
  {
    std::vector<std::jthread> threads;
    std::unique_lock lock(mutex_);
    for (std::size_t who = 0; who < count; ++who) {
      ready_.push_back(who);
      threads.emplace_back([&, who] {
        std::unique_lock own(mutex_);
        await_turn(own, who);
        own.unlock();
        std::exception_ptr error;
        try {
          body(who);
        } catch (...) {
          error = std::current_exception();
        }
        own.lock();
        if (error && !failure_) failure_ = error;
        give(kNobody);
      });
    }
    while (!ready_.empty() || !waiting_.empty()) {
      if (ready_.empty()) {
        const std::size_t who = waiting_.front();
        waiting_.pop_front();
        try {
          answers_[who] = {fetch_(), nullptr};
        } catch (...) {
          answers_[who] = {{}, std::current_exception()};
        }
        ready_.push_back(who);
      }
      const std::size_t next = ready_.front();
      ready_.pop_front();
      give(next);
      await_turn(lock, kNobody);
    }
  }
  if (failure_) std::rethrow_exception(failure_);
}

std::size_t Turns::current() {
  const std::lock_guard lock(mutex_);
  return turn_;
}

PipelineValue Turns::wait(std::size_t who) {
  std::unique_lock lock(mutex_);
  waiting_.push_back(who);
  give(kNobody);
  await_turn(lock, who);
  Answer answer = std::exchange(answers_[who], {});
  if (answer.error) std::rethrow_exception(answer.error);
  return std::move(answer.value);
}

}  // namespace haul::distributed
