#pragma once

// Waits for one read: `reader.read({…, end.done()}); …; end.wait();`. May be dropped before the
// read has ended.

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace haul::runtime {

class ReadEnd {
 public:
  std::function<void(std::exception_ptr)> done() const {
    return [state = state_](std::exception_ptr error) {
      const std::lock_guard lock(state->mutex);
      state->error = std::move(error);
      state->ended = true;
      state->changed.notify_all();
    };
  }

  bool ended() const {
    const std::lock_guard lock(state_->mutex);
    return state_->ended;
  }

  // Throws the read's Error, once.
  void wait() {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->ended; });
    if (state_->error) std::rethrow_exception(std::exchange(state_->error, nullptr));
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::exception_ptr error;
    bool ended = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace haul::runtime
