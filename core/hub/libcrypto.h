#pragma once

// SHA-256 by OpenSSL's libcrypto, which uses the processor's own instructions: ten times the speed
// of plain code. libcurl brings the library; it is loaded when first needed. An object serves one
// thread.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace haul::core {

class LibcryptoSha256 {
 public:
  // Null where the library is not there.
  static std::unique_ptr<LibcryptoSha256> begin();
  ~LibcryptoSha256();
  LibcryptoSha256(const LibcryptoSha256&) = delete;
  LibcryptoSha256& operator=(const LibcryptoSha256&) = delete;

  void update(std::span<const std::byte> bytes);
  // 64 hexadecimal digits; the object is spent.
  std::string finish();

 private:
  explicit LibcryptoSha256(void* context) : context_(context) {}
  void* context_;
};

}  // namespace haul::core
