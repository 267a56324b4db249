#include <algorithm>
#include <mutex>
#include <utility>

#include "runtime/stream/lane.h"
#include "runtime/stream/staging.h"
#include "runtime/tiers/slab.h"

// From a file a weight comes in pieces: each is read into staging memory, copied on by the copy
// stream, and its memory is free again when the driver says that the copy has ended.

namespace haul::runtime {
namespace {

// One weight on its way from a file.
struct Arrival {
  std::byte* to = nullptr;
  std::optional<FloatCast> cast;
  std::vector<GpuPoint> after;
  Lane::Done done;
  Bytes pieces_left = 0;
  std::exception_ptr error;
};

class GpuLane final : public Lane {
 public:
  GpuLane(int index, std::shared_ptr<DiskReader> disk, Ledger host, Bytes staging,
          std::size_t lanes)
      : index_(index),
        staging_(std::move(disk), kStagedPiece, std::max<Bytes>(2, staging / kLeastStaging),
                 [host = std::move(host), lanes](Bytes size) mutable {
                   // Others need some as well: who comes last finds what it needs at least.
                   if (const auto left = host.left()) {
                     size = std::min(size, std::max(*left / (lanes + 1), kLeastStaging));
                   }
                   return std::make_unique<Slab>(c10::Device(c10::kCPU), size,
                                                 host.reserve(Tag::kStaging, size), true);
                 }),
        copies_(index) {}
  GpuLane(const GpuLane&) = delete;
  GpuLane& operator=(const GpuLane&) = delete;
  ~GpuLane() override { staging_.finish(); }  // while what it tells can still be copied

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

  void expect(std::span<const Home> homes) override { staging_.expect(homes); }
  std::size_t reach() const override { return staging_.reach(); }

  void wait(const GpuPoint& ready) override { current_stream_waits(index_, ready); }
  GpuPoint used() noexcept override {
    try {
      return point_of_current_stream(index_);
    } catch (...) {
      return {};  // a GPU that has failed reads nothing more, and says so at the next call
    }
  }

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
    arrival->to = to;
    arrival->cast = home.cast;
    arrival->after = std::move(after);
    arrival->done = std::move(done);
    arrival->pieces_left = staging_.pieces_of(home.size);
    try {
      staging_.read(home, [this, arrival](const Staging::Piece& piece, std::exception_ptr error) {
        copy_on(*arrival, piece, std::move(error));
      });
    } catch (...) {
      arrival->done(std::current_exception(), {});
    }
  }

  struct Copied {
    Staging* staging;
    std::byte* data;
  };

  // Called with copy_mutex_ held.
  void issue(const Arrival& arrival, const Staging::Piece& piece) {
    for (const GpuPoint& point : arrival.after) copies_.wait(point);
    if (arrival.cast) {
      const Bytes from = c10::elementSize(arrival.cast->from);
      std::byte* const to = arrival.to + piece.offset / from * c10::elementSize(arrival.cast->to);
      copies_.cast(to, piece.data, *arrival.cast, piece.size / from);
    } else {
      copies_.copy(arrival.to + piece.offset, piece.data, piece.size);
    }
    auto copied = std::make_unique<Copied>(Copied{&staging_, piece.data});
    copies_.then(
        [](void* context) {
          const std::unique_ptr<Copied> ended(static_cast<Copied*>(context));
          ended->staging->give_back(ended->data);
        },
        copied.get());
    static_cast<void>(copied.release());  // the driver's now
  }

  void copy_on(Arrival& arrival, const Staging::Piece& piece, std::exception_ptr error) {
    GpuPoint ready;
    bool copying = false;
    bool last = false;
    {
      // Counted as the copies are issued: what comes after the last of them comes after all.
      const std::lock_guard lock(copy_mutex_);
      last = --arrival.pieces_left == 0;
      try {
        if (!error) {
          issue(arrival, piece);
          copying = true;
          if (last) ready = copies_.point();
        }
      } catch (...) {
        error = std::current_exception();
      }
      if (error) arrival.error = error;
      error = arrival.error;
    }
    if (!copying) staging_.give_back(piece.data);
    if (last) arrival.done(error, std::move(ready));
  }

  int index_;
  std::mutex copy_mutex_;
  Staging staging_;
  CopyStream copies_;  // last: its end waits for copies that still call back
};

}  // namespace

std::unique_ptr<Lane> make_gpu_lane(int index, std::shared_ptr<DiskReader> disk, Ledger host,
                                    Bytes staging, std::size_t lanes) {
  return std::make_unique<GpuLane>(index, std::move(disk), std::move(host), staging, lanes);
}

}  // namespace haul::runtime
