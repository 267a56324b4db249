#pragma once

// Linear layers of a few rows whose weights lie in RAM and are used on a GPU: while the link brings
// the first rows of a weight, the CPU multiplies the others where they lie. The caller waits for
// neither, and goes on to what comes after them. Any thread; layers of one input of a model at a
// time.

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/tiers/gpu.h"
#include "runtime/tiers/host_work.h"
#include "runtime/tiers/ledger.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {

// Where the CPU works for a GPU: pinned memory through which vectors go to the CPU and its products
// to the GPU, which reaches it by its address, so that nothing waits behind the weights on the
// link.
class SplitRoom {
 public:
  SplitRoom(int gpu, Ledger ram) : gpu_(gpu), ram_(std::move(ram)), work_(gpu) {}
  ~SplitRoom();

  // So many bytes for vectors, and behind them for products, of one at a time. They may be used
  // again after what the current stream has been given when this ends, be it with an error.
  class Use {
   public:
    Use(SplitRoom& room, Bytes size)
        : room_(room), entered_(room.mutex_), memory_(room.take(size)) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { room_.leave(); }

    std::byte* memory() const { return memory_; }
    HostWork& work() const { return room_.work_; }

   private:
    SplitRoom& room_;
    std::unique_lock<std::mutex> entered_;
    std::byte* memory_;
  };

 private:
  std::byte* take(Bytes size);
  void leave() noexcept;

  struct Side {
    std::unique_ptr<Slab> slab;
    GpuPoint last_use;
  };

  int gpu_;
  Ledger ram_;
  std::mutex mutex_;
  std::array<Side, 8> sides_;  // in turns: so many may be under way
  std::size_t turn_ = 0;
  HostWork work_;  // last: its end waits for work that uses the sides
};

// Memory of somebody else, which a GPU reaches, as a tensor of the GPU.
at::Tensor as_gpu_tensor(void* data, c10::Device device, c10::ScalarType type, std::int64_t rows,
                         std::int64_t columns);

// Whether the CPU helps: the weight has a part for it, there are few rows, and no gradient is asked
// for.
bool is_split(const at::Tensor& x, const at::Tensor& weight);
// As at::linear by each of the weights, but for the order of sums; a bias may be undefined.
// REQUIRES: is_split(x, weight) of each, all of one model; `x` is on their device, and biases are
// or come there.
std::vector<at::Tensor> split_linears(const at::Tensor& x, std::span<const at::Tensor> weights,
                                      std::span<const at::Tensor> biases);

// How many rows of a weight (out, in) are brought where the CPU takes this share; all of them where
// that would be of no use.
std::int64_t rows_to_bring(const at::Tensor& weight, c10::ScalarType type, double cpu_share);

}  // namespace haul::runtime
