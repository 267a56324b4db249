#include "runtime/dispatch/pinner.h"

namespace haul::runtime {

Pinner::~Pinner() {
  end();
}

void Pinner::add(Slab* slab, int gpu, Pages pages) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({slab, gpu, pages});
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_one();
}

void Pinner::finish() {
  end();
  if (error_) std::rethrow_exception(error_);
}

void Pinner::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Pinner::work() {
  for (;;) {
    Item next{};
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      next = waiting_.front();
      waiting_.pop_front();
    }
    try {
      if (!error_) next.slab->pin_for(next.gpu, next.pages);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
}

}  // namespace haul::runtime
