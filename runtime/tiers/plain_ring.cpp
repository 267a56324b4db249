#include <unistd.h>

#include <cerrno>

#include "runtime/tiers/read_ring.h"

namespace haul::runtime {
namespace {

class PlainRing : public ReadRing {
 public:
  int depth() const override { return 1; }

  void begin(int descriptor, Bytes offset, std::span<std::byte> to, void* tag) override {
    const ssize_t count = ::pread(descriptor, to.data(), to.size(), static_cast<off_t>(offset));
    ended_.push_back({tag, count < 0 ? -errno : count});
  }

  void collect(bool, std::vector<Ended>& ended) override {
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }

 private:
  std::vector<Ended> ended_;
};

}  // namespace

std::unique_ptr<ReadRing> make_plain_ring() {
  return std::make_unique<PlainRing>();
}

}  // namespace haul::runtime
