#include "core/hub/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace haul::core {
namespace {

constexpr std::size_t kBlock = 64;

constexpr std::array<std::uint32_t, 64> kRound256{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::byte* data) {
  return std::to_integer<std::uint32_t>(data[0]) << 24 |
         std::to_integer<std::uint32_t>(data[1]) << 16 |
         std::to_integer<std::uint32_t>(data[2]) << 8 | std::to_integer<std::uint32_t>(data[3]);
}

// Cuts input into blocks; what is left over waits in `pending`.
template <typename Block>
void feed(std::span<const std::byte> bytes, std::array<std::byte, kBlock>& pending, Bytes& size,
          Block block) {
  const std::size_t held = size % kBlock;
  size += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(kBlock - held, bytes.size());
    std::memcpy(pending.data() + held, bytes.data(), taken);
    if (held + taken < kBlock) return;
    block(pending.data());
    bytes = bytes.subspan(taken);
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) block(bytes.data());
  if (!bytes.empty()) std::memcpy(pending.data(), bytes.data(), bytes.size());
}

// The padding of both: a one bit, zeros, the length in bits.
template <typename Hash>
void pad(Hash& hash, Bytes size) {
  std::array<std::byte, 2 * kBlock> padding{};
  padding[0] = std::byte{0x80};
  const std::size_t zeros = (kBlock + 55 - size % kBlock) % kBlock;
  for (int i = 0; i < 8; ++i) {
    padding[1 + zeros + i] = static_cast<std::byte>((size * 8) >> (56 - 8 * i));
  }
  hash.update({padding.data(), 1 + zeros + 8});
}

template <std::size_t N>
std::string hexadecimal(const std::array<std::uint32_t, N>& words) {
  std::string text;
  for (const std::uint32_t word : words) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace

void Sha256::update(std::span<const std::byte> bytes) {
  feed(bytes, pending_, size_, [this](const std::byte* data) { block(data); });
}

std::string Sha256::finish() {
  pad(*this, size_);
  return hexadecimal(state_);
}

void Sha256::block(const std::byte* data) {
  std::array<std::uint32_t, 64> w;
  for (int i = 0; i < 16; ++i) w[i] = big_endian(data + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + (g ^ (e & (f ^ g))) + kRound256[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) | (c & (a | b)));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
}

void Sha1::update(std::span<const std::byte> bytes) {
  feed(bytes, pending_, size_, [this](const std::byte* data) { block(data); });
}

std::string Sha1::finish() {
  pad(*this, size_);
  return hexadecimal(state_);
}

void Sha1::block(const std::byte* data) {
  std::array<std::uint32_t, 80> w;
  for (int i = 0; i < 16; ++i) w[i] = big_endian(data + 4 * i);
  for (int i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  auto [a, b, c, d, e] = state_;
  for (int i = 0; i < 80; ++i) {
    std::uint32_t mixed = b ^ c ^ d;
    std::uint32_t constant = 0xca62c1d6;
    if (i < 20) {
      mixed = d ^ (b & (c ^ d));
      constant = 0x5a827999;
    } else if (i < 40) {
      constant = 0x6ed9eba1;
    } else if (i < 60) {
      mixed = (b & c) | (d & (b | c));
      constant = 0x8f1bbcdc;
    }
    const std::uint32_t next = std::rotl(a, 5) + mixed + e + constant + w[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<std::uint32_t, 5> added{a, b, c, d, e};
  for (std::size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
}

}  // namespace haul::core
