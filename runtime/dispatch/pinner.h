#pragma once

// Pins host memory on a thread of its own, one slab after another, while others are filled.

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/tiers/slab.h"

namespace haul::runtime {

class Pinner {
 public:
  Pinner() = default;
  Pinner(const Pinner&) = delete;
  Pinner& operator=(const Pinner&) = delete;
  ~Pinner();  // when all that was added is done

  // For copies to that GPU. The memory may be written meanwhile. Any thread.
  void add(Slab* slab, int gpu, Pages pages);
  // Waits for all, and throws what went wrong first. No more is added then.
  void finish();

 private:
  struct Item {
    Slab* slab;
    int gpu;
    Pages pages;
  };

  void work();
  void end() noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> waiting_;
  bool ended_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // from the first slab on
};

}  // namespace haul::runtime
