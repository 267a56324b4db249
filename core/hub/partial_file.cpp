#include "core/hub/partial_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/hub/name.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = 1 << 20;

std::optional<Bytes> free_space(const fs::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return std::nullopt;
  return static_cast<Bytes>(status.f_bavail) * status.f_frsize;
}

[[noreturn]] void throw_full(const fs::path& folder, Bytes needed, Bytes available) {
  throw Error(ErrorKind::kResource,
              fmt::format("{}: the disk is full: {} ({} bytes) are needed, {} are free",
                          folder.string(), format_bytes(needed), needed, format_bytes(available)),
              "free some space, or let HF_HUB_CACHE name a folder on another disk");
}

[[noreturn]] void fail(const fs::path& path, const char* verb, int code) {
  throw Error(ErrorKind::kResource,
              fmt::format("{}: cannot {}: {}", path.string(), verb, std::strerror(code)));
}

}  // namespace

void check_free_space(const fs::path& folder, Bytes needed) {
  const auto available = free_space(folder);
  if (available && *available < needed) throw_full(folder, needed, *available);
}

PartialFile::PartialFile(const fs::path& blob, std::string etag, std::optional<Bytes> size)
    : blob_(blob), path_(blob.string() + ".incomplete"), etag_(std::move(etag)), expected_(size) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) fail(path_, "open", errno);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail(path_, "read", errno);
  size_ = static_cast<Bytes>(status.st_size);
  const bool trusted = (is_sha256(etag_) || is_commit(etag_)) && expected_ && size_ <= *expected_;
  if (!trusted) {
    restart();
  } else {
    reopen_hash();
  }
}

PartialFile::~PartialFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// git's hash begins with the kind and the size.
void PartialFile::reopen_hash() {
  if (is_sha256(etag_)) fast_sha256_ = LibcryptoSha256::begin();
  sha256_ = Sha256();
  sha1_ = Sha1();
  if (is_commit(etag_) && expected_) {
    const std::string head = fmt::format("blob {}", *expected_);
    sha1_.update(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
  }
  std::vector<std::byte> buffer(std::min<Bytes>(kBuffer, size_));
  for (Bytes done = 0; done < size_;) {
    const ssize_t count =
        ::pread(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(path_, "read", count < 0 ? errno : EIO);
    const std::span<const std::byte> bytes(buffer.data(), static_cast<std::size_t>(count));
    hash(bytes);
    done += bytes.size();
  }
}

void PartialFile::hash(std::span<const std::byte> bytes) {
  if (fast_sha256_) {
    fast_sha256_->update(bytes);
  } else if (is_sha256(etag_)) {
    sha256_.update(bytes);
  } else if (is_commit(etag_)) {
    sha1_.update(bytes);
  }
}

void PartialFile::expect(Bytes size) {
  expected_ = size;
  reopen_hash();
}

void PartialFile::restart() {
  if (::ftruncate(descriptor_, 0) != 0) fail(path_, "empty", errno);
  size_ = 0;
  reopen_hash();
}

void PartialFile::append(std::span<const std::byte> bytes) {
  hash(bytes);
  while (!bytes.empty()) {
    // At its own place: should a lock not hold, both writers write the same.
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      const fs::path folder = path_.parent_path();
      const Bytes needed = expected_ ? *expected_ - size_ : bytes.size();
      throw_full(folder, needed, free_space(folder).value_or(0));
    }
    if (count < 0) fail(path_, "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    size_ += static_cast<Bytes>(count);
  }
}

std::optional<std::string> PartialFile::wrong_hash() {
  if (!is_sha256(etag_) && !is_commit(etag_)) return std::nullopt;
  const bool large = is_sha256(etag_);
  const std::string found = fast_sha256_ ? fast_sha256_->finish()
                            : large      ? sha256_.finish()
                                         : sha1_.finish();
  if (found == etag_) return std::nullopt;
  return fmt::format("expected {} {}, found {}", large ? "sha256" : "git sha1", etag_, found);
}

void PartialFile::commit() {
  if (::fsync(descriptor_) != 0) fail(path_, "write", errno);
  if (::rename(path_.c_str(), blob_.c_str()) != 0) fail(blob_, "move into place", errno);
}

void PartialFile::remove() {
  ::unlink(path_.c_str());
}

}  // namespace haul::core
