#include "core/hub/libcrypto.h"

#include <dlfcn.h>

#include <array>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

// The few functions that are used, with their contexts as plain pointers: no header is needed.
struct Functions {
  void* (*context_new)() = nullptr;
  void (*context_free)(void*) = nullptr;
  const void* (*sha256)() = nullptr;
  int (*init)(void*, const void*, void*) = nullptr;
  int (*update)(void*, const void*, std::size_t) = nullptr;
  int (*final)(void*, unsigned char*, unsigned*) = nullptr;
  bool loaded = false;
};

Functions load() {
  Functions functions;
  void* library = ::dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = ::dlopen("libcrypto.so.1.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return functions;
  bool all = true;
  const auto bind = [&](const char* name, auto* function) {
    void* address = ::dlsym(library, name);
    all = all && address != nullptr;
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(address);
  };
  bind("EVP_MD_CTX_new", &functions.context_new);
  bind("EVP_MD_CTX_free", &functions.context_free);
  bind("EVP_sha256", &functions.sha256);
  bind("EVP_DigestInit_ex", &functions.init);
  bind("EVP_DigestUpdate", &functions.update);
  bind("EVP_DigestFinal_ex", &functions.final);
  functions.loaded = all;
  return functions;
}

const Functions& libcrypto() {
  static const Functions functions = load();
  return functions;
}

void require(int ok) {
  if (ok != 1) throw Error(ErrorKind::kInternal, "libcrypto fails to compute a SHA-256");
}

}  // namespace

std::unique_ptr<LibcryptoSha256> LibcryptoSha256::begin() {
  if (!libcrypto().loaded) return nullptr;
  void* context = libcrypto().context_new();
  if (context == nullptr) return nullptr;
  std::unique_ptr<LibcryptoSha256> hash(new LibcryptoSha256(context));
  // A build for special rules may refuse the hash.
  if (libcrypto().init(context, libcrypto().sha256(), nullptr) != 1) return nullptr;
  return hash;
}

LibcryptoSha256::~LibcryptoSha256() {
  libcrypto().context_free(context_);
}

void LibcryptoSha256::update(std::span<const std::byte> bytes) {
  require(libcrypto().update(context_, bytes.data(), bytes.size()));
}

std::string LibcryptoSha256::finish() {
  std::array<unsigned char, 32> digest{};
  require(libcrypto().final(context_, digest.data(), nullptr));
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace haul::core
