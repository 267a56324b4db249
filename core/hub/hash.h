#pragma once

// SHA-256 and SHA-1, fed in pieces: the hub names large files by the first and small ones by the
// second. An object serves one thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "haul/bytes.h"

namespace haul::core {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  // 64 hexadecimal digits; the object is spent.
  std::string finish();

 private:
  void block(const std::byte* data);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  Bytes size_ = 0;
};

class Sha1 {
 public:
  void update(std::span<const std::byte> bytes);
  // 40 hexadecimal digits; the object is spent.
  std::string finish();

 private:
  void block(const std::byte* data);

  std::array<std::uint32_t, 5> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<std::byte, 64> pending_{};
  Bytes size_ = 0;
};

}  // namespace haul::core
