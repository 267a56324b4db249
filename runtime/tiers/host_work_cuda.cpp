#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/host_work.h"

// Two counters in pinned memory: the stream writes how far it has come, and waits until the thread
// has written that the work is done. Calls of the driver, because the runtime has none for this.

namespace haul::runtime {
namespace {

using StreamValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

StreamValue driver_call(const char* name) {
  constexpr unsigned kSince = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &function, kSince, cudaEnableDefault, &found);
  if (code != cudaSuccess || function == nullptr) {
    throw Error(ErrorKind::kUnsupported, fmt::format("the GPU's driver has no {}", name),
                "update the driver");
  }
  return reinterpret_cast<StreamValue>(function);
}

struct alignas(64) Counter {
  std::uint32_t value = 0;

  std::atomic_ref<std::uint32_t> now() { return std::atomic_ref(value); }
  CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(&value); }
};

struct alignas(4096) Counters {
  Counter given;  // by the stream
  Counter done;   // by the thread
};

// Counters begin anew after the largest number.
bool has_reached(std::uint32_t now, std::uint32_t number) {
  return static_cast<std::int32_t>(now - number) >= 0;
}

}  // namespace

struct HostWork::State {
  explicit State(int gpu)
      : index(gpu),
        write(driver_call("cuStreamWriteValue32")),
        wait(driver_call("cuStreamWaitValue32")) {
    pin(counters.get(), sizeof(Counters));
    thread = std::thread([this] { run(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopped = true;
    }
    arrived.notify_one();
    thread.join();
    unpin(counters.get());
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void call(StreamValue function, Counter& counter) const {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    const cudaStream_t stream =
        c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index)).stream();
    const CUresult code = function(stream, counter.address(), number, 0);
    if (code == CUDA_SUCCESS) return;
    throw Error(ErrorKind::kResource,
                fmt::format("GPU {}: its stream cannot wait for the CPU: driver error {}", index,
                            static_cast<int>(code)));
  }

  void run() {
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex);
        arrived.wait(lock, [&] { return stopped || !jobs.empty(); });
        if (jobs.empty()) return;
        job = std::move(jobs.front());
        jobs.pop_front();
      }
      while (!has_reached(counters->given.now().load(std::memory_order_acquire), job.number)) {
        if (stopped) return;
        std::this_thread::yield();
      }
      job.work();
      counters->done.now().store(job.number, std::memory_order_release);
    }
  }

  struct Job {
    std::uint32_t number = 0;
    std::function<void()> work;
  };

  int index;
  StreamValue write;
  StreamValue wait;
  std::unique_ptr<Counters> counters = std::make_unique<Counters>();
  std::uint32_t number = 0;
  std::mutex mutex;
  std::condition_variable arrived;
  std::atomic<bool> stopped = false;
  std::deque<Job> jobs;
  std::thread thread;
};

HostWork::HostWork(int gpu) : state_(std::make_unique<State>(gpu)) {}

HostWork::~HostWork() = default;

void HostWork::begin() {
  ++state_->number;
  state_->call(state_->write, state_->counters->given);
}

void HostWork::finish(std::function<void()> work) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.push_back({state_->number, std::move(work)});
  }
  state_->arrived.notify_one();
  state_->call(state_->wait, state_->counters->done);
}

}  // namespace haul::runtime
