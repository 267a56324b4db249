#pragma once

// Threads for work in many pieces that is known ahead of its time: they look out for it, because
// being woken takes longer than the work may. Two counters tell when: the owner's, which says up to
// which number work may begin, and theirs, up to which it is done. Works are in order: the time of
// one comes when the one before is done. One caller at a time.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace haul::runtime {

class HostThreads {
 public:
  // Both counters are the same at the beginning, and outlive the threads.
  HostThreads(int threads, std::uint32_t* begun, std::uint32_t* done);
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;
  ~HostThreads();  // leaves out what no thread has begun

  // `work` is called for every piece from 0, by several threads at once, when `begun` has come to
  // the number; then `done` is set to it. It must not throw. REQUIRES: pieces > 0; the number is
  // the one after the last, and after the largest comes 0.
  void add(std::uint32_t number, std::size_t pieces, std::function<void(std::size_t)> work);

 private:
  struct Job {
    std::uint32_t number = 0;
    std::size_t pieces = 0;
    std::function<void(std::size_t)> work;
    std::atomic<std::size_t> taken = 0;
    std::atomic<std::size_t> finished = 0;
  };

  void run();
  void end();
  // The first job that comes after so many; null at the end.
  std::shared_ptr<Job> job_after(std::uint64_t& seen);
  bool has_begun(const Job& job) const;
  void work_on(Job& job);

  std::atomic_ref<std::uint32_t> begun_;
  std::atomic_ref<std::uint32_t> done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;    // that are not finished
  std::atomic<std::uint64_t> finished_ = 0;  // jobs before the first of these
  std::atomic<std::uint64_t> added_ = 0;
  std::atomic<bool> ended_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace haul::runtime
