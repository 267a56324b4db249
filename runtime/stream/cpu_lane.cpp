#include <cstring>
#include <utility>

#include "runtime/stream/lane.h"

namespace haul::runtime {
namespace {

class CpuLane final : public Lane {
 public:
  explicit CpuLane(std::shared_ptr<DiskReader> disk) : disk_(std::move(disk)) {}

  c10::Device device() const override { return c10::Device(c10::kCPU); }
  Bytes slack() const override { return kReadSlack; }

  void fill(const Home& home, std::byte* to, std::vector<GpuPoint>, Done done) override {
    if (home.host != nullptr) {
      std::memcpy(to, home.host, home.size);
      done(nullptr, {});
      return;
    }
    disk_->read(
        {home.file, home.offset, home.size, to,
         [done = std::move(done)](std::exception_ptr error) { done(std::move(error), {}); }});
  }

  void wait(const GpuPoint&) override {}
  GpuPoint used() noexcept override { return {}; }
  void read_back(std::byte* host, const std::byte* from, Bytes size) override {
    std::memcpy(host, from, size);
  }

 private:
  std::shared_ptr<DiskReader> disk_;
};

}  // namespace

std::unique_ptr<Lane> make_cpu_lane(std::shared_ptr<DiskReader> disk) {
  return std::make_unique<CpuLane>(std::move(disk));
}

}  // namespace haul::runtime
