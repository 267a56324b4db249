#include "haul/error.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/gpu_graph.h"
#include "runtime/tiers/host_work.h"

namespace haul::runtime {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::kUnsupported, "this build of haul has no GPU part",
              "build it where the CUDA toolkit and a torch with its CUDA libraries are");
}

}  // namespace

struct GpuPoint::Event {};

bool built_for_gpus() {
  return false;
}

std::vector<Gpu> gpus() {
  return {};
}

Bytes free_of_gpu(int) {
  refuse();
}

void let_pools_grow() {}

void* allocate_on_gpu(int, Bytes) {
  refuse();
}
void free_on_gpu(int, void*) noexcept {}
void pin(void*, Bytes, std::optional<int>, Pages) {
  refuse();
}
void unpin(void*) noexcept {}

GpuPoint point_of_current_stream(int) {
  refuse();
}
void current_stream_waits(int, const GpuPoint&) {
  refuse();
}
bool is_past(const GpuPoint&) {
  return true;
}
void wait_for(const GpuPoint&) {}
void settle(const GpuPoint&) noexcept {}
void rest_until(const GpuPoint&) {}

struct CopyStream::State {};
CopyStream::CopyStream(int) {
  refuse();
}
CopyStream::~CopyStream() = default;
void CopyStream::wait(const GpuPoint&) {}
void CopyStream::copy(void*, const void*, Bytes) {}
void CopyStream::copy_rows(void*, Bytes, const void*, Bytes, Bytes, Bytes) {}
void CopyStream::cast(void*, const void*, const FloatCast&, Bytes) {}
GpuPoint CopyStream::point() {
  return {};
}
void CopyStream::then(void (*)(void*), void*) {}

struct GpuGraph::State {};
GpuGraph::GpuGraph(int) {
  refuse();
}
GpuGraph::~GpuGraph() = default;
void GpuGraph::record(const std::function<void()>&) {}
GpuPoint GpuGraph::replay() {
  return {};
}

struct HostWork::State {};
HostWork::HostWork(int) {
  refuse();
}
HostWork::~HostWork() = default;
void HostWork::begin() {}
// NOLINTNEXTLINE(performance-unnecessary-value-param): the real one keeps it
void HostWork::finish(std::size_t, std::function<void(std::size_t)>) {}

}  // namespace haul::runtime
