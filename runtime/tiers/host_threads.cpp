#include "runtime/tiers/host_threads.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace haul::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than from one product to the next. Beyond that others may need the cores: a layer that the
// CPU computes alone.
constexpr std::chrono::microseconds kLooksOut(500);

bool is_over(Clock::time_point begin) {
  return Clock::now() - begin > kLooksOut;
}

}  // namespace

HostThreads::HostThreads(int threads, std::uint32_t* begun, std::uint32_t* done)
    : begun_(*begun), done_(*done) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  } catch (...) {
    end();  // those that have started
    throw;
  }
}

HostThreads::~HostThreads() {
  end();
}

void HostThreads::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

void HostThreads::add(std::uint32_t number, std::size_t pieces,
                      std::function<void(std::size_t)> work) {
  auto job = std::make_shared<Job>();
  job->number = number;
  job->pieces = pieces;
  job->work = std::move(work);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    ++added_;
  }
  changed_.notify_all();
}

std::shared_ptr<HostThreads::Job> HostThreads::job_after(std::uint64_t& seen) {
  const auto none = [&] { return std::max<std::uint64_t>(seen, finished_) >= added_; };
  const auto begin = Clock::now();
  while (none() && !ended_ && !is_over(begin)) std::this_thread::yield();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    seen = std::max<std::uint64_t>(seen, finished_);  // others may have been faster
    return ended_ || seen < added_;
  });
  return ended_ ? nullptr : jobs_[seen++ - finished_];
}

bool HostThreads::has_begun(const Job& job) const {
  return static_cast<std::int32_t>(begun_.load(std::memory_order_acquire) - job.number) >= 0;
}

void HostThreads::work_on(Job& job) {
  for (std::size_t piece = job.taken++; piece < job.pieces; piece = job.taken++) {
    job.work(piece);
    if (++job.finished < job.pieces) continue;
    {
      const std::lock_guard lock(mutex_);
      jobs_.pop_front();
      ++finished_;
    }
    done_.store(job.number, std::memory_order_release);
  }
}

void HostThreads::run() {
  std::uint64_t seen = 0;
  while (const std::shared_ptr<Job> job = job_after(seen)) {
    const auto begin = Clock::now();
    while (!has_begun(*job)) {
      if (ended_) return;
      if (is_over(begin)) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      } else {
        std::this_thread::yield();
      }
    }
    work_on(*job);
  }
}

}  // namespace haul::runtime
