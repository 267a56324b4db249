#pragma once

// A content on its way into the cache: ETAG.incomplete, which a later run goes on with. One thread
// at a time, under the content's lock. Errors name the path; a full disk is Error(kResource) that
// tells how much is needed and free.

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/hub/hash.h"
#include "core/hub/libcrypto.h"
#include "haul/bytes.h"

namespace haul::core {

// Throws Error(kResource) when a folder's disk has less room than `needed`.
void check_free_space(const std::filesystem::path& folder, Bytes needed);

class PartialFile {
 public:
  // `etag` tells what the content must hash to, where it is a hash. Without one, what an earlier
  // run left is not trusted and removed.
  PartialFile(const std::filesystem::path& blob, std::string etag, std::optional<Bytes> size);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  Bytes size() const { return size_; }
  // The size it must reach, once known.
  std::optional<Bytes> expected() const { return expected_; }
  void expect(Bytes size);
  bool complete() const { return expected_ && size_ == *expected_; }

  // Not more than is expected.
  void append(std::span<const std::byte> bytes);
  void restart();

  // Nothing when the content is right; else "expected …, found …".
  std::optional<std::string> wrong_hash();
  // Makes it the content, on the disk before it has its name.
  void commit();
  // Forgets what was fetched.
  void remove();

 private:
  void reopen_hash();
  void hash(std::span<const std::byte> bytes);

  std::filesystem::path blob_;
  std::filesystem::path path_;
  std::string etag_;
  std::optional<Bytes> expected_;
  int descriptor_ = -1;
  Bytes size_ = 0;
  // One of these computes what the etag tells; the first where libcrypto is there.
  std::unique_ptr<LibcryptoSha256> fast_sha256_;
  Sha256 sha256_;
  Sha1 sha1_;
};

}  // namespace haul::core
