#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/host_threads.h"
#include "runtime/tiers/host_work.h"

// Two counters in pinned memory: the stream writes how far it has come, and waits until the threads
// have written that the work is done. Calls of the driver, because the runtime has none for this.

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

// Cores for whoever gives the GPU its work, and for the driver: a product that has to wait for one
// of them takes ten times as long.
constexpr int kOtherCores = 2;

}  // namespace

struct HostWork::State {
  struct alignas(64) Counter {
    std::uint32_t value = 0;

    CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(&value); }
  };

  struct alignas(4096) Counters {
    Counter begun;  // by the stream
    Counter done;   // by the threads
  };

  explicit State(int gpu)
      : index(gpu),
        write(driver_call("cuStreamWriteValue32")),
        wait(driver_call("cuStreamWaitValue32")) {
    pin(counters.get(), sizeof(Counters));
    threads.emplace(std::max(1, at::get_num_threads() - kOtherCores), &counters->begun.value,
                    &counters->done.value);
  }
  ~State() {
    threads.reset();
    // Work that was left out, after an error: nothing on the GPU may wait for it for ever.
    std::atomic_ref(counters->done.value).store(number, std::memory_order_release);
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    cudaDeviceSynchronize();
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
                fmt::format("GPU {}: its stream cannot wait for the CPU: {}", index,
                            cudaGetErrorString(static_cast<cudaError_t>(code))));
  }

  // Until the threads have done all there is. On a GPU that has failed nothing begins any more.
  void wait_here() {
    const cudaStream_t stream =
        c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index)).stream();
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    if (cudaStreamSynchronize(stream) != cudaSuccess) return;
    const std::atomic_ref done(counters->done.value);
    while (done.load(std::memory_order_acquire) != number) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  int index;
  StreamValue write;
  StreamValue wait;
  std::unique_ptr<Counters> counters = std::make_unique<Counters>();
  std::uint32_t number = 0;
  std::optional<HostThreads> threads;
};

HostWork::HostWork(int gpu) : state_(std::make_unique<State>(gpu)) {}

HostWork::~HostWork() = default;

void HostWork::begin() {
  ++state_->number;
  state_->call(state_->write, state_->counters->begun);
}

void HostWork::finish(std::size_t pieces, std::function<void(std::size_t)> work) {
  state_->threads->add(state_->number, pieces, std::move(work));
  try {
    state_->call(state_->wait, state_->counters->done);
  } catch (const Error&) {
    state_->wait_here();  // what the work uses is its caller's
    throw;
  }
}

}  // namespace haul::runtime
