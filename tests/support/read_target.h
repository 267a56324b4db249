#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "haul/bytes.h"
#include "runtime/tiers/disk_reader.h"
#include "runtime/tiers/read_end.h"

namespace haul::test {

// Bytes for a file, the same each time and without a period.
inline std::string random_bytes(std::size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() >> 32);
  return bytes;
}

// Memory for one read, with the slack that it may use and, around that, bytes that it may not.
class ReadTarget {
 public:
  // `phase`: where the wanted bytes begin, behind a multiple of 4096.
  explicit ReadTarget(Bytes size, Bytes phase = 0)
      : size_(size), memory_(size + 2 * runtime::kReadSlack + 4 * 4096, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = (0 - address) % 4096 + 4096 + runtime::kReadSlack + phase % 4096;
  }

  std::byte* to() { return memory_.data() + begin_; }
  bool holds(const std::string& bytes, Bytes offset) const {
    return std::equal(memory_.begin() + static_cast<std::ptrdiff_t>(begin_),
                      memory_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_),
                      reinterpret_cast<const std::byte*>(bytes.data()) + offset);
  }
  // Nothing was written outside the slack.
  bool kept_to_itself() const {
    const auto before = static_cast<std::ptrdiff_t>(begin_ - runtime::kReadSlack);
    const auto behind = static_cast<std::ptrdiff_t>(begin_ + size_ + runtime::kReadSlack);
    const auto untouched = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(memory_.begin(), memory_.begin() + before, untouched) &&
           std::all_of(memory_.begin() + behind, memory_.end(), untouched);
  }

 private:
  static constexpr std::byte kGuard{0xA5};
  Bytes size_;
  std::vector<std::byte> memory_;
  Bytes begin_ = 0;
};

inline runtime::ReadEnd start_read(runtime::DiskReader& reader, int file, Bytes offset, Bytes size,
                                   std::byte* to) {
  runtime::ReadEnd end;
  reader.read({file, offset, size, to, end.done()});
  return end;
}

}  // namespace haul::test
