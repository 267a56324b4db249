#pragma once

// Ids on their way out: a list that grows without clearing what it has not written yet, and takes
// a handful of ids without asking how many of them count. For one thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace haul::tokenizers {

class IdBuffer {
 public:
  static constexpr std::size_t kHandful = 4;

  const std::uint32_t* begin() const { return ids_.get(); }
  const std::uint32_t* end() const { return ids_.get() + size_; }
  std::size_t size() const { return size_; }
  void clear() { size_ = 0; }

  void push_back(std::uint32_t id) {
    if (size_ == capacity_) grow(1);
    ids_[size_++] = id;
  }
  void append(const std::uint32_t* ids, std::size_t count) {
    if (capacity_ - size_ < count) grow(count);
    std::copy_n(ids, count, ids_.get() + size_);
    size_ += count;
  }
  // The first `count` of these. REQUIRES: count <= kHandful.
  void append_handful(const std::uint32_t (&ids)[kHandful], std::size_t count) {
    if (capacity_ - size_ < kHandful) grow(kHandful);
    std::memcpy(ids_.get() + size_, ids, sizeof(ids));
    size_ += count;
  }

 private:
  void grow(std::size_t more) {
    const std::size_t capacity = std::max({capacity_ * 2, size_ + more, std::size_t{256}});
    auto ids = std::make_unique_for_overwrite<std::uint32_t[]>(capacity);
    std::copy_n(ids_.get(), size_, ids.get());
    ids_ = std::move(ids);
    capacity_ = capacity;
  }

  std::unique_ptr<std::uint32_t[]> ids_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace haul::tokenizers
