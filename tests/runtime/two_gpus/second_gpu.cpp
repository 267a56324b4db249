// Where this is linked in, a machine with one GPU has two: both numbers are the first one. torch
// and haul keep streams, pools of memory, budgets and current devices by number. These functions of
// CUDA's runtime, which know GPUs by number, stand in front of the real ones: an executable's own
// come first for all of its libraries. Both numbers have one memory: a copy that is missing between
// two real GPUs is not missed here.

#include <dlfcn.h>

#include <cuda_runtime_api.h>

namespace {

constexpr int kGpus = 2;
thread_local int current = 0;

template <typename Function>
Function* real(Function* /*own*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
// By the name that a header may have given it.
#define NAME(name) #name
#define REAL(name) real(&name, NAME(name))

bool is_gpu(int device) {
  return device >= 0 && device < kGpus;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  static const auto next = REAL(cudaGetDeviceCount);
  const cudaError_t result = next(count);
  if (result == cudaSuccess && *count > 0) *count = kGpus;
  return result;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  static const auto next = REAL(cudaSetDevice);
  if (!is_gpu(device)) return cudaErrorInvalidDevice;
  const cudaError_t result = next(0);
  if (result == cudaSuccess) current = device;
  return result;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  static const auto next = REAL(cudaGetDeviceProperties);
  return is_gpu(device) ? next(properties, 0) : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  static const auto next = REAL(cudaDeviceGetAttribute);
  return is_gpu(device) ? next(value, attribute, 0) : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  static const auto next = REAL(cudaDeviceGetPCIBusId);
  return is_gpu(device) ? next(id, length, 0) : cudaErrorInvalidDevice;
}

// As of GPUs without a link between them.
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = 0;
  return is_gpu(device) && is_gpu(peer) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t size, cudaStream_t stream) {
  if (!is_gpu(to_device) || !is_gpu(from_device)) return cudaErrorInvalidDevice;
  return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}

}  // extern "C"

// torch asks the driver, which knows one number, whether a GPU is in use.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(signed char));
}  // namespace c10::cuda::_internal
namespace {
const bool both_in_use = [] {
  c10::cuda::_internal::setHasPrimaryContext([](signed char) { return true; });
  return true;
}();
}  // namespace
