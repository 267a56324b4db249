#include "runtime/dispatch/split_linear.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/strides.h>

#include "haul/plan.h"
#include "haul/tensor_memory.h"
#include "kernels/host_rows.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/weight_store.h"

namespace haul::runtime {
namespace {

static_assert(kMostHelpedRows <= static_cast<std::int64_t>(kernels::kMostVectors));
constexpr Bytes kWorthIt = 1 * kMiB;  // of a weight: less is copied sooner than handed over

// Memory of somebody else, as a tensor of the GPU.
at::Tensor as_tensor(void* data, c10::Device device, c10::ScalarType type, std::int64_t rows,
                     std::int64_t columns) {
  const std::array<std::int64_t, 2> sizes = {rows, columns};
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(type)) * rows * columns;
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, device));
  return tensor_on(storage, type, sizes, c10::contiguous_strides(sizes), 0, false);
}

bool is_whole(const at::Tensor& weight) {
  return weight.dim() == 2 && weight.is_contiguous() && weight.storage_offset() == 0 &&
         weight.nbytes() == weight.storage().nbytes();
}

// The lease of one part.
class PartLease {
 public:
  PartLease(Streamer& streamer, int part) : streamer_(streamer), part_{part} {
    streamer.lease(part_, data_);
  }
  PartLease(const PartLease&) = delete;
  PartLease& operator=(const PartLease&) = delete;
  ~PartLease() { streamer_.release(part_); }

  std::byte* data() const { return data_.front(); }

 private:
  Streamer& streamer_;
  std::array<int, 1> part_;
  std::vector<std::byte*> data_;
};

}  // namespace

std::unique_lock<std::mutex> SplitRoom::enter() {
  std::unique_lock lock(mutex_);
  wait_for(last_use_);
  return lock;
}

std::byte* SplitRoom::take(Bytes size) {
  if (!slab_ || slab_->size() < size) {
    slab_.reset();
    slab_ = std::make_unique<Slab>(c10::Device(c10::kCPU), size, ram_.reserve(Tag::kStaging, size),
                                   true);
  }
  return slab_->data();
}

std::int64_t rows_to_bring(const at::Tensor& weight, c10::ScalarType type, double cpu_share) {
  constexpr std::int64_t kTogether = 16;  // rows, so that what is brought stays aligned
  const std::int64_t rows = weight.size(0);
  if (!kernels::has_host_rows(type)) return rows;
  if (static_cast<Bytes>(weight.numel()) * c10::elementSize(type) < kWorthIt) return rows;
  const auto brought = static_cast<std::int64_t>(
      std::llround((1 - cpu_share) * static_cast<double>(rows) / kTogether));
  return std::clamp(brought * kTogether, kTogether, rows);
}

bool is_split(const at::Tensor& x, const at::Tensor& weight) {
  const Weight* const split = find_weight(weight);
  if (split == nullptr || !split->helped || !is_whole(weight) || x.dim() == 0) return false;
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad())) return false;
  const std::int64_t width = weight.size(1);
  return x.size(-1) == width && x.numel() > 0 && x.numel() <= kMostHelpedRows * width &&
         x.scalar_type() == weight.scalar_type();
}

at::Tensor split_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Weight* const split = find_weight(weight);
  const std::int64_t width = weight.size(1);
  const std::int64_t count = x.numel() / width;
  const c10::ScalarType type = weight.scalar_type();
  const c10::Device device = split->device;
  const auto row_bytes = static_cast<Bytes>(width) * c10::elementSize(type);
  const auto brought = static_cast<std::int64_t>(split->part_size / row_bytes);
  const kernels::HostRows host{type, split->host + split->part_size, width,
                               weight.size(0) - brought};

  const at::Tensor vectors = x.reshape({count, width}).contiguous();
  SplitRoom& room = split->store->split_room();
  const std::unique_lock entered = room.enter();
  const Bytes vector_bytes = aligned_memory(static_cast<Bytes>(count * width) * sizeof(float));
  const Bytes product_bytes = static_cast<Bytes>(count * host.count) * c10::elementSize(type);
  std::byte* const memory = room.take(vector_bytes + product_bytes);
  at::Tensor to_cpu = as_tensor(memory, device, c10::ScalarType::Float, count, width);
  // By a kernel: a copy would be one of the link's.
  at::mul_out(to_cpu, vectors, at::scalar_tensor(1));
  const GpuPoint given = point_of_current_stream(device.index());
  at::Tensor products;
  {
    const PartLease lease(*split->streamer, split->part);
    products = at::linear(vectors, as_tensor(lease.data(), device, type, brought, width));
  }
  wait_for(given);
  kernels::multiply_host_rows(host, reinterpret_cast<const float*>(memory), count,
                              memory + vector_bytes);
  const at::Tensor others = as_tensor(memory + vector_bytes, device, type, count, host.count);
  at::Tensor result = at::cat({products, others}, 1);
  room.leave(point_of_current_stream(device.index()));
  if (bias.defined()) result.add_(bias);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return result.view(sizes);
}

}  // namespace haul::runtime
