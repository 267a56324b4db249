#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <system_error>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/tiers/gpu.h"

namespace haul::runtime {
namespace {

void check(cudaError_t code, const std::string& what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // not the next caller's
  throw Error(ErrorKind::kResource, fmt::format("{}: {}", what, cudaGetErrorString(code)));
}

std::string gpu_name(int index) {
  return fmt::format("GPU {}", index);
}

// Fresh pages are the slow part of pinning: all cores touch them first.
void touch(std::byte* memory, Bytes size) {
  const Bytes threads = std::max(1U, std::thread::hardware_concurrency());
  const Bytes share = (size / threads / 4096 + 1) * 4096;
  const auto populate = [memory](Bytes begin, Bytes count) {
    madvise(memory + begin, count, MADV_POPULATE_WRITE);
  };
  std::vector<std::jthread> workers;
  Bytes begin = 0;
  try {
    for (; begin < size; begin += share) {
      workers.emplace_back(populate, begin, std::min(share, size - begin));
    }
  } catch (const std::system_error&) {
    populate(begin, size - begin);  // no more threads are to be had
  }
}

}  // namespace

struct GpuPoint::Event {
  explicit Event(int gpu) : index(gpu) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event != nullptr) cudaEventDestroy(event);
  }

  int index;
  cudaEvent_t event = nullptr;
};

namespace {

GpuPoint record(int index, cudaStream_t stream) {
  // Torch's usual stream is that of whichever GPU is the current one.
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  auto point = std::make_shared<GpuPoint::Event>(index);
  cudaError_t code = cudaEventCreateWithFlags(&point->event, cudaEventDisableTiming);
  if (code == cudaSuccess) code = cudaEventRecord(point->event, stream);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    code = cudaStreamSynchronize(stream);
    point = nullptr;  // long past
  }
  check(code, gpu_name(index));
  return GpuPoint(std::move(point));
}

cudaStream_t current_stream(int index) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index)).stream();
}

}  // namespace

bool built_for_gpus() {
  return true;
}

std::vector<Gpu> gpus() {
  int count = 0;
  // A machine without a GPU or driver answers with an error: it has none.
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<Gpu> result;
  for (int i = 0; i < count; ++i) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(i));
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, i), gpu_name(i));
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), gpu_name(i));
    result.push_back({i, properties.name, total, free});
  }
  return result;
}

Bytes free_of_gpu(int index) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), gpu_name(index));
  return free;
}

void let_pools_grow() {
  for (const char* const name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (std::getenv(name) != nullptr) return;
  }
  if (!c10::CachingAllocator::getAllocatorSettings().empty()) return;
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True,large_segment_size_mb:12");
}

void* allocate_on_gpu(int index, Bytes size) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  void* memory = nullptr;
  cudaError_t code = cudaMalloc(&memory, size);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    try {
      c10::cuda::CUDACachingAllocator::emptyCache();  // of what torch's tensors had
    } catch (const c10::Error&) {
      // It stays as long as another thread records.
    }
    code = cudaMalloc(&memory, size);
  }
  check(code, fmt::format("GPU {}: {}", index, format_bytes(size)));
  return memory;
}

void free_on_gpu(int index, void* memory) noexcept {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  cudaFree(memory);
}

void pin(void* memory, Bytes size, std::optional<int> index, Pages pages) {
  if (pages == Pages::kFresh) touch(static_cast<std::byte*>(memory), size);
  // Else a thread's first call would make a context on a GPU that nobody asked for.
  c10::cuda::OptionalCUDAGuard guard;
  if (index) guard.set_index(static_cast<c10::DeviceIndex>(*index));
  check(cudaHostRegister(memory, size, cudaHostRegisterPortable),
        fmt::format("pinning {} of RAM", format_bytes(size)));
}

void unpin(void* memory) noexcept {
  cudaHostUnregister(memory);
}

GpuPoint point_of_current_stream(int index) {
  return record(index, current_stream(index));
}

void current_stream_waits(int index, const GpuPoint& point) {
  if (!point.event()) return;
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  check(cudaStreamWaitEvent(current_stream(index), point.event()->event), gpu_name(index));
}

bool is_past(const GpuPoint& point) {
  // A GPU that has failed says so at the next call.
  return !point.event() || cudaEventQuery(point.event()->event) != cudaErrorNotReady;
}

void wait_for(const GpuPoint& point) {
  if (!point.event()) return;
  check(cudaEventSynchronize(point.event()->event), gpu_name(point.event()->index));
}

void settle(const GpuPoint& point) noexcept {
  if (point.event()) cudaEventSynchronize(point.event()->event);
}

void rest_until(const GpuPoint& point) {
  while (!is_past(point)) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

struct CopyStream::State {
  int index = 0;
  cudaStream_t stream = nullptr;
};

CopyStream::CopyStream(int index) : state_(std::make_unique<State>()) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  state_->index = index;
  check(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking), gpu_name(index));
}

CopyStream::~CopyStream() {
  cudaStreamSynchronize(state_->stream);
  cudaStreamDestroy(state_->stream);
}

void CopyStream::wait(const GpuPoint& point) {
  if (!point.event()) return;
  check(cudaStreamWaitEvent(state_->stream, point.event()->event), gpu_name(state_->index));
}

void CopyStream::copy(void* to, const void* from, Bytes size) {
  check(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, state_->stream),
        fmt::format("GPU {}: copying {}", state_->index, format_bytes(size)));
}

void CopyStream::copy_rows(void* to, Bytes to_step, const void* from, Bytes from_step, Bytes width,
                           Bytes count) {
  check(cudaMemcpy2DAsync(to, to_step, from, from_step, width, count, cudaMemcpyDefault,
                          state_->stream),
        fmt::format("GPU {}: copying {}", state_->index, format_bytes(width * count)));
}

void CopyStream::cast(void* to, const void* from, const FloatCast& types, Bytes count) {
  const auto index = static_cast<c10::DeviceIndex>(state_->index);
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(state_->stream, index));
  const at::InferenceMode no_gradients;
  const auto floats = [&](void* data, c10::ScalarType type) {
    return at::for_blob(data, {static_cast<std::int64_t>(count)})
        .options(at::TensorOptions(type).device(at::kCUDA, index))
        .target_device(c10::Device(c10::kCUDA, index))
        .make_tensor();
  };
  try {
    floats(to, types.to).copy_(floats(const_cast<void*>(from), types.from), true);
  } catch (const c10::Error& error) {
    throw Error(ErrorKind::kResource, fmt::format("GPU {}: casting {} numbers: {}", state_->index,
                                                  count, error.what_without_backtrace()));
  }
}

GpuPoint CopyStream::point() {
  return record(state_->index, state_->stream);
}

void CopyStream::then(void (*function)(void*), void* context) {
  check(cudaLaunchHostFunc(state_->stream, function, context), gpu_name(state_->index));
}

}  // namespace haul::runtime
