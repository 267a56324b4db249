#pragma once

// The way of bytes that the CPU makes to a GPU: through pinned memory of its own, of which one half
// is copied while the other is filled. One thread at a time.

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "haul/bytes.h"
#include "runtime/stream/lane.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/ledger.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {

class Sender {
 public:
  // With two halves of so many bytes; throws Error(kResource) where RAM has no room for them.
  Sender(Reservation reservation, Bytes half);
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  ~Sender();  // waits for its copies

  // What is sent from now on comes to `to`, through `lane`.
  void begin(Lane& lane, std::byte* to);
  // Throws the lane's error.
  void send(std::span<const std::byte> bytes);
  // All that was sent is there.
  void end();

 private:
  void copy();

  struct Half {
    std::byte* data = nullptr;
    GpuPoint copied;
  };

  Slab slab_;
  Bytes size_;
  std::array<Half, 2> halves_;
  std::size_t turn_ = 0;
  Bytes filled_ = 0;  // of the half whose turn it is
  Lane* lane_ = nullptr;
  std::byte* to_ = nullptr;
};

// So many at most, of weights up to a size. Of a budget of RAM that is nearly full half of what is
// left beside `others` is taken, by fewer and in smaller halves; where not even the least is left,
// it is taken all the same.
std::vector<std::unique_ptr<Sender>> make_senders(Ledger* ram, Bytes largest, Bytes others,
                                                  std::size_t most);

}  // namespace haul::runtime
