#include <algorithm>
#include <cerrno>

#include <liburing.h>

#include "runtime/tiers/read_ring.h"

namespace haul::runtime {
namespace {

class Uring : public ReadRing {
 public:
  explicit Uring(int depth)
      : depth_(depth),
        opened_(::io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0) == 0) {}
  ~Uring() override {
    if (opened_) ::io_uring_queue_exit(&ring_);
  }
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  bool opened() const { return opened_; }
  int depth() const override { return depth_; }

  void begin(int descriptor, Bytes offset, std::span<std::byte> to, void* tag) override {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      refused_.push_back({tag, -EAGAIN});
      return;
    }
    ::io_uring_prep_read(entry, descriptor, to.data(), static_cast<unsigned>(to.size()), offset);
    ::io_uring_sqe_set_data(entry, tag);
    int code = 0;
    do {
      code = ::io_uring_submit(&ring_);
    } while (code == -EINTR);
    if (code >= 0) {
      ++under_way_;
      return;
    }
    // The entry stays in the queue and goes with the next one: it must do nothing then.
    ::io_uring_prep_nop(entry);
    ::io_uring_sqe_set_data(entry, nullptr);
    refused_.push_back({tag, code});
  }

  void collect(bool wait, std::vector<Ended>& ended) override {
    if (!refused_.empty()) {
      ended.insert(ended.end(), refused_.begin(), refused_.end());
      refused_.clear();
      wait = false;
    }
    io_uring_cqe* entry = nullptr;
    while (wait && under_way_ > 0 && ::io_uring_wait_cqe(&ring_, &entry) == -EINTR) {
    }
    while (under_way_ > 0 && ::io_uring_peek_cqe(&ring_, &entry) == 0) {
      if (void* tag = ::io_uring_cqe_get_data(entry)) {
        ended.push_back({tag, entry->res});
        --under_way_;
      }
      ::io_uring_cqe_seen(&ring_, entry);
    }
  }

 private:
  int depth_;
  io_uring ring_{};
  bool opened_;
  int under_way_ = 0;
  std::vector<Ended> refused_;
};

}  // namespace

std::unique_ptr<ReadRing> make_uring(int depth) {
  auto ring = std::make_unique<Uring>(std::max(depth, 1));
  if (!ring->opened()) return nullptr;
  return ring;
}

}  // namespace haul::runtime
