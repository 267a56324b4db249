#include "core/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string_view verb, const fs::path& path, int code) {
  const auto kind = code == ENOENT || code == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kResource;
  std::string hint;
  if (code == ENOSPC) hint = "free some space on this disk, or choose another folder";
  throw Error(kind, fmt::format("{}: cannot {}: {}", path.string(), verb, std::strerror(code)),
              hint);
}

// A large file goes to disk while it is being written, so that commit has little to wait for.
constexpr Bytes kWriteback = 32 * kMiB;

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

// Opens a regular file for reading and tells its size.
int open_regular(const fs::path& path, Bytes* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open", path, errno);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    const int code = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    ::close(fd);
    fail("read", path, code);
  }
  *size = static_cast<Bytes>(status.st_size);
  return fd;
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const Descriptor fd(open_regular(path, &size_));
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) fail("map", path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop(Bytes offset, Bytes size) const {
  const Bytes page = static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
  const Bytes begin = (offset + page - 1) / page * page;
  const Bytes end = (offset + size) / page * page;
  if (begin >= end || end > size_) return;
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

std::string read_file(const fs::path& path, Bytes limit) {
  Bytes size = 0;
  const Descriptor fd(open_regular(path, &size));
  if (size > limit) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: {} is too long for such a file (limit {})", path.string(),
                            format_bytes(size), format_bytes(limit)));
  }
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path, errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  std::string pattern = (path_.parent_path() / ("." + path_.filename().string() + ".XXXXXX"));
  descriptor_ = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail("create", path_, errno);
  temporary_ = pattern;
  ::fchmod(descriptor_, 0644);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const Bytes before = size_;
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    size_ += static_cast<Bytes>(count);
  }
  const Bytes begin = before / kWriteback * kWriteback;
  const Bytes end = size_ / kWriteback * kWriteback;
  if (begin == end) return;
  ::sync_file_range(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                    SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("write", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("move into place", path_, errno);
  ::close(std::exchange(descriptor_, -1));
  // The rename itself must survive a power cut too.
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  const Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) ::fsync(parent.get());
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace haul::core
