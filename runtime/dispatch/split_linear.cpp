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

#include "haul/error.h"
#include "haul/plan.h"
#include "haul/tensor_memory.h"
#include "kernels/host_rows.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/weight_store.h"

namespace haul::runtime {
namespace {

static_assert(kMostHelpedRows <= static_cast<std::int64_t>(kernels::kMostVectors));
constexpr Bytes kWorthIt = 1 * kMiB;  // of a weight: less is copied sooner than handed over

Bytes products_size(const kernels::HostRows& rows, std::int64_t vectors) {
  return aligned_memory(static_cast<Bytes>(vectors * rows.count) * c10::elementSize(rows.type));
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

// Leased when no part is: who waits for room may not hold some, of which there may be one slot.
void add_bias(const at::Tensor& bias, at::Tensor& to) {
  OpLeases leases;
  Weight* const weight = is_marked(bias) ? find_weight(bias) : nullptr;
  if (weight != nullptr && weight->streamer != nullptr) leases.take({weight});
  to.add_(bias);
}

}  // namespace

std::byte* SplitRoom::take(Bytes size) {
  Side& side = sides_[turn_];
  rest_until(side.last_use);
  if (!side.slab || side.slab->size() < size) {
    side.slab.reset();
    side.slab = std::make_unique<Slab>(c10::Device(c10::kCPU), size,
                                       ram_.reserve(Tag::kStaging, size), true);
  }
  return side.slab->data();
}

void SplitRoom::leave() noexcept {
  try {
    sides_[turn_].last_use = point_of_current_stream(gpu_);
  } catch (...) {
    sides_[turn_].last_use = {};  // of a GPU that has failed, which uses it no more
  }
  turn_ = (turn_ + 1) % sides_.size();
}

SplitRoom::~SplitRoom() {
  for (const Side& side : sides_) settle(side.last_use);
}

at::Tensor as_gpu_tensor(void* data, c10::Device device, c10::ScalarType type, std::int64_t rows,
                         std::int64_t columns) {
  const std::array<std::int64_t, 2> sizes = {rows, columns};
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(type)) * rows * columns;
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, device));
  return tensor_on(storage, type, sizes, c10::contiguous_strides(sizes), 0, false);
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
  if (split == nullptr || !is_whole(weight) || x.dim() == 0) return false;
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad())) return false;
  const std::int64_t width = weight.size(1);
  return x.size(-1) == width && x.numel() > 0 && x.numel() <= split->helped_rows * width &&
         x.scalar_type() == weight.scalar_type();
}

namespace {

// Of vectors (count, width) and each weight.
std::vector<at::Tensor> products_of(const at::Tensor& vectors,
                                    std::span<const at::Tensor> weights) {
  const Weight* const first = find_weight(weights.front());
  const c10::Device device = first->device;
  const c10::ScalarType type = weights.front().scalar_type();
  const std::int64_t width = vectors.size(1);
  const std::int64_t count = vectors.size(0);
  const auto row_bytes = static_cast<Bytes>(width) * c10::elementSize(type);

  std::vector<const Weight*> split;
  std::vector<kernels::HostRows> host;
  const Bytes vector_bytes = aligned_memory(static_cast<Bytes>(count * width) * sizeof(float));
  Bytes room_bytes = vector_bytes;
  for (const at::Tensor& weight : weights) {
    split.push_back(find_weight(weight));
    const std::byte* const rows = split.back()->host + split.back()->part_size;
    const auto brought = static_cast<std::int64_t>(split.back()->part_size / row_bytes);
    host.push_back({type, rows, width, weight.size(0) - brought});
    room_bytes += products_size(host.back(), count);
  }

  const SplitRoom::Use use(first->store->split_room(device), room_bytes);
  std::byte* const memory = use.memory();
  std::byte* out = memory + vector_bytes;
  for (kernels::HostRows& rows : host) {
    rows.out = out;
    out += products_size(rows, count);
  }
  at::Tensor to_cpu = as_gpu_tensor(memory, device, c10::ScalarType::Float, count, width);
  // By a kernel: a copy would be one of the link's.
  at::mul_out(to_cpu, vectors, at::scalar_tensor(1));
  use.work().begin();
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < split.size(); ++i) {  // one at a time: a plan has room for one
    const PartLease lease(*split[i]->streamer, split[i]->part);
    const std::int64_t brought = weights[i].size(0) - host[i].count;
    results.push_back(
        at::linear(vectors, as_gpu_tensor(lease.data(), device, type, brought, width)));
  }
  const kernels::HostProducts products(host, reinterpret_cast<const float*>(memory), count);
  use.work().finish(products.pieces(), [products](std::size_t piece) { products.multiply(piece); });
  for (std::size_t i = 0; i < split.size(); ++i) {
    const at::Tensor others = as_gpu_tensor(host[i].out, device, type, count, host[i].count);
    results[i] = at::cat({results[i], others}, 1);
  }
  return results;
}

}  // namespace

std::vector<at::Tensor> split_linears(const at::Tensor& x, std::span<const at::Tensor> weights,
                                      std::span<const at::Tensor> biases) {
  const std::int64_t width = weights.front().size(1);
  std::vector<at::Tensor> results =
      products_of(x.reshape({x.numel() / width, width}).contiguous(), weights);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (biases[i].defined()) add_bias(biases[i], results[i]);
    sizes.back() = weights[i].size(0);
    results[i] = results[i].view(sizes);
  }
  return results;
}

}  // namespace haul::runtime
