#include "runtime/tiers/host_threads.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace haul::runtime {
namespace {

constexpr int kLooks = 4000;  // some milliseconds: longer than from one layer to the next

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
  for (int i = 0; i < kLooks && none() && !ended_; ++i) std::this_thread::yield();
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
    for (int looks = 0; !has_begun(*job); ++looks) {
      if (ended_) return;
      if (looks < kLooks) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
    work_on(*job);
  }
}

}  // namespace haul::runtime
