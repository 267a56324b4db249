#include "runtime/tiers/disk_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/tiers/disk_reader.h"

namespace haul::runtime {
namespace {

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

DiskFile::DiskFile(std::filesystem::path path, bool direct) : path_(std::move(path)) {
  cached_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  int code = cached_ < 0 ? errno : 0;
  if (code == 0 && ::fstat(cached_, &opened_) != 0) code = errno;
  if (code == 0 && !S_ISREG(opened_.st_mode)) code = S_ISDIR(opened_.st_mode) ? EISDIR : EINVAL;
  if (code != 0) {
    if (cached_ >= 0) ::close(cached_);
    const bool absent = code == ENOENT || code == ENOTDIR;
    throw Error(absent ? ErrorKind::kNotFound : ErrorKind::kResource,
                fmt::format("{}: cannot open: {}", path_.string(), std::strerror(code)));
  }
  if (direct) open_direct();
}

DiskFile::~DiskFile() {
  ::close(cached_);
  if (direct_ >= 0) ::close(direct_);
}

void DiskFile::open_direct() {
  direct_ = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (direct_ < 0) return;
  struct stat same {};
  if (::fstat(direct_, &same) != 0 || !same_file(same, opened_)) return;  // replaced just now
  offset_align_ = memory_align_ = 4096;
  struct statx status {};
  if (::statx(direct_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    memory_align_ = std::max<Bytes>(status.stx_dio_mem_align, 1);
    offset_align_ = std::max<Bytes>(status.stx_dio_offset_align, memory_align_);
    if (status.stx_dio_offset_align == 0 || offset_align_ > kReadSlack) {
      offset_align_ = memory_align_ = 1;
      return;
    }
  }
  direct_works_ = true;
  // What is left to the page cache is there, or a few bytes: nothing is to be read ahead.
  ::posix_fadvise(cached_, 0, 0, POSIX_FADV_RANDOM);
}

Bytes DiskFile::size() const {
  return static_cast<Bytes>(opened_.st_size);
}

void DiskFile::check_unchanged() const {
  struct stat now {};
  std::string found;
  if (::stat(path_.c_str(), &now) != 0) {
    found = errno == ENOENT ? "it is gone" : std::strerror(errno);
  } else if (!same_file(now, opened_)) {
    found = "it was replaced by another file";
  } else if (now.st_size != opened_.st_size) {
    found = fmt::format("it had {} bytes and has {} now", opened_.st_size, now.st_size);
  } else if (!same_time(now.st_mtim, opened_.st_mtim)) {
    found = "it was written to";
  } else {
    return;
  }
  throw Error(ErrorKind::kCorrupt,
              fmt::format("{}: changed while it was in use: {}", path_.string(), found),
              "load the model again; its files must stay as they are while it runs");
}

}  // namespace haul::runtime
