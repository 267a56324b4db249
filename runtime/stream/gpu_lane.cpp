#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "runtime/stream/lane.h"
#include "runtime/tiers/slab.h"

// From a file a weight comes in pieces: each is read into a staging slot, copied on by the copy
// stream, and the slot is free again when the driver says that the copy has ended.

namespace haul::runtime {
namespace {

constexpr Bytes kPiece = 16 * kMiB;
constexpr Bytes kSlot = kPiece + 2 * kReadSlack;

// One weight on its way from a file.
struct Arrival {
  std::vector<GpuPoint> after;
  Lane::Done done;
  std::mutex mutex;
  std::size_t pieces_left = 0;
  std::exception_ptr error;
};

struct Piece {
  std::shared_ptr<Arrival> arrival;
  int file = 0;
  Bytes offset = 0;
  Bytes size = 0;
  std::byte* to = nullptr;
};

class GpuLane final : public Lane {
 public:
  GpuLane(int index, std::shared_ptr<DiskReader> disk, Ledger host, Bytes staging)
      : index_(index),
        disk_(std::move(disk)),
        host_(std::move(host)),
        slots_(std::max<Bytes>(2, staging / kSlot)),
        copies_(index) {}

  c10::Device device() const override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(index_)};
  }
  Bytes slack() const override { return 0; }

  void fill(const Home& home, std::byte* to, std::vector<GpuPoint> after, Done done) override {
    if (home.host == nullptr) {
      fill_from_file(home, to, std::move(after), std::move(done));
      return;
    }
    GpuPoint ready;
    try {
      // One after the other: the waits and the copy of one weight are not to mix with another's.
      const std::lock_guard lock(copy_mutex_);
      for (const GpuPoint& point : after) copies_.wait(point);
      copies_.copy(to, home.host, home.size);
      ready = copies_.point();
    } catch (...) {
      done(std::current_exception(), {});
      return;
    }
    done(nullptr, std::move(ready));
  }

  void wait(const GpuPoint& ready) override { current_stream_waits(index_, ready); }
  GpuPoint used() override { return point_of_current_stream(index_); }

  void read_back(std::byte* host, const std::byte* from, Bytes size) override {
    GpuPoint end;
    {
      const std::lock_guard lock(copy_mutex_);
      copies_.wait(point_of_current_stream(index_));
      copies_.copy(host, from, size);
      end = copies_.point();
    }
    wait_for(end);
  }

 private:
  void fill_from_file(const Home& home, std::byte* to, std::vector<GpuPoint> after, Done done) {
    auto arrival = std::make_shared<Arrival>();
    arrival->after = std::move(after);
    arrival->done = std::move(done);
    arrival->pieces_left = std::max<Bytes>(1, (home.size + kPiece - 1) / kPiece);
    {
      const std::lock_guard lock(staging_mutex_);
      make_staging();
      for (Bytes begin = 0; begin < home.size || begin == 0; begin += kPiece) {
        waiting_.push_back({arrival, home.file, home.offset + begin,
                            std::min(kPiece, home.size - begin), to + begin});
      }
    }
    start_reads();
  }

  // Called with staging_mutex_ held.
  void make_staging() {
    if (staging_) return;
    const Bytes size = slots_ * kSlot;
    staging_ = std::make_unique<Slab>(c10::Device(c10::kCPU), size,
                                      host_.reserve(Tag::kStaging, size), true);
    for (Bytes slot = 0; slot < slots_; ++slot) free_.push_back(slot);
  }

  void start_reads() {
    for (;;) {
      Piece piece;
      Bytes slot = 0;
      {
        const std::lock_guard lock(staging_mutex_);
        if (waiting_.empty() || free_.empty()) return;
        piece = std::move(waiting_.front());
        waiting_.pop_front();
        slot = free_.front();
        free_.pop_front();
      }
      std::byte* const at = staging_->data() + slot * kSlot + kReadSlack;
      const DiskRead read{piece.file, piece.offset, piece.size, at,
                          [this, piece, slot, at](std::exception_ptr error) {
                            copy_on(piece, slot, at, std::move(error));
                          }};
      disk_->read(read);
    }
  }

  struct FreeSlot {
    GpuLane* lane;
    Bytes slot;
  };

  void copy_on(const Piece& piece, Bytes slot, const std::byte* from, std::exception_ptr error) {
    GpuPoint ready;
    bool copying = false;
    if (!error) {
      try {
        const std::lock_guard lock(copy_mutex_);
        for (const GpuPoint& point : piece.arrival->after) copies_.wait(point);
        copies_.copy(piece.to, from, piece.size);
        copies_.then(
            [](void* context) {
              const std::unique_ptr<FreeSlot> freed(static_cast<FreeSlot*>(context));
              freed->lane->give_back(freed->slot);
            },
            new FreeSlot{this, slot});
        copying = true;
        ready = copies_.point();
      } catch (...) {
        error = std::current_exception();
      }
    }
    if (!copying) give_back(slot);
    bool last = false;
    {
      const std::lock_guard lock(piece.arrival->mutex);
      if (error) piece.arrival->error = error;
      last = --piece.arrival->pieces_left == 0;
      error = piece.arrival->error;
    }
    // Copies are in one stream: after the piece that came last, all are there.
    if (last) piece.arrival->done(error, std::move(ready));
  }

  void give_back(Bytes slot) {
    {
      const std::lock_guard lock(staging_mutex_);
      free_.push_back(slot);
    }
    start_reads();
  }

  int index_;
  std::shared_ptr<DiskReader> disk_;
  Ledger host_;
  Bytes slots_;
  std::mutex copy_mutex_;
  std::mutex staging_mutex_;
  std::unique_ptr<Slab> staging_;
  std::deque<Bytes> free_;
  std::deque<Piece> waiting_;
  CopyStream copies_;  // last: its end waits for copies that still call back
};

}  // namespace

std::unique_ptr<Lane> make_gpu_lane(int index, std::shared_ptr<DiskReader> disk, Ledger host,
                                    Bytes staging) {
  return std::make_unique<GpuLane>(index, std::move(disk), std::move(host), staging);
}

}  // namespace haul::runtime
