#pragma once

// A linear layer of a few rows whose weight lies in RAM and is used on a GPU: while the link brings
// the first rows of the weight, the CPU multiplies the others where they lie. Any thread; one such
// layer of a model at a time.

#include <memory>
#include <mutex>
#include <utility>

#include <ATen/core/Tensor.h>

#include "runtime/tiers/gpu.h"
#include "runtime/tiers/ledger.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {

// Pinned memory through which vectors go to the CPU and its products to the GPU. GPUs reach it by
// its address, so that nothing waits behind the weights on the link.
class SplitRoom {
 public:
  explicit SplitRoom(Ledger ram) : ram_(std::move(ram)) {}

  // Held for as long as the room is used.
  std::unique_lock<std::mutex> enter();
  // REQUIRES: entered. Bytes for vectors, and behind them for products.
  std::byte* take(Bytes size);
  // The room may be used again once this is past.
  void leave(GpuPoint last_use) { last_use_ = std::move(last_use); }

 private:
  Ledger ram_;
  std::mutex mutex_;
  std::unique_ptr<Slab> slab_;
  GpuPoint last_use_;
};

// Whether the CPU helps: the weight has a part for it, there are few rows, and no gradient is asked
// for.
bool is_split(const at::Tensor& x, const at::Tensor& weight);
// As at::linear, but for the order of sums. REQUIRES: is_split(x, weight); `x` and `bias` are on
// the weight's device.
at::Tensor split_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// How many rows of a weight (out, in) are brought where the CPU takes this share; all of them where
// that would be of no use.
std::int64_t rows_to_bring(const at::Tensor& weight, c10::ScalarType type, double cpu_share);

}  // namespace haul::runtime
