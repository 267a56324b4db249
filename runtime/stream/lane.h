#pragma once

// How the bytes of a weight come into memory that an execution device computes from: from a file
// into RAM, from RAM to a GPU, from a file through RAM to a GPU. One lane serves one device; any
// thread may call it.

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <c10/core/Device.h>

#include "haul/bytes.h"
#include "runtime/tiers/disk_reader.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/ledger.h"

namespace haul::runtime {

// Where a weight is kept: at `host`, or in a file when that is null.
struct Home {
  std::byte* host = nullptr;
  int file = 0;  // of the disk reader
  Bytes offset = 0;
  Bytes size = 0;
  // Of floats in a file for a GPU: what they become on their way. Others come as they are.
  std::optional<FloatCast> cast = {};

  bool operator==(const Home&) const = default;
};

class Lane {
 public:
  virtual ~Lane() = default;

  virtual c10::Device device() const = 0;
  // Bytes that a slot needs before and behind the weight.
  virtual Bytes slack() const = 0;

  // Told once: the bytes are there for work that comes after the point, or the reason why not.
  using Done = std::function<void(std::exception_ptr, GpuPoint)>;
  // Brings a weight to `to`, once all of `after` is past. `done` may be called before this
  // returns, and by another thread.
  virtual void fill(const Home& home, std::byte* to, std::vector<GpuPoint> after, Done done) = 0;
  // Weights in files that will be filled next, in their order, in place of those named before. A
  // lane that has memory of its own to read them into begins with it; for others this is nothing.
  virtual void expect(std::span<const Home> /*homes*/) {}
  // How many weights it can make use of at most, at present.
  virtual std::size_t reach() const { return 0; }
  // The caller's further work comes after the point.
  virtual void wait(const GpuPoint& ready) = 0;
  // The caller's work so far.
  virtual GpuPoint used() noexcept = 0;
  // Copies back from the device to RAM, and waits for it.
  virtual void read_back(std::byte* host, const std::byte* from, Bytes size) = 0;
};

// Weights of the CPU come from files.
std::unique_ptr<Lane> make_cpu_lane(std::shared_ptr<DiskReader> disk);
// Weights of a GPU come from pinned RAM and, through `staging` bytes of it, from files. The staging
// memory is made when the first file is read: of a budget of RAM a share beside `lanes` that read
// files, this one among them, and kLeastStaging at least.
inline constexpr Bytes kStagedPiece = 16 * kMiB;
inline constexpr Bytes kLeastStaging = kStagedPiece + 2 * kReadSlack;
std::unique_ptr<Lane> make_gpu_lane(int index, std::shared_ptr<DiskReader> disk, Ledger host,
                                    Bytes staging, std::size_t lanes);

}  // namespace haul::runtime
