#include "core/convert/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string_view verb, const fs::path& path, std::string_view why) {
  throw Error(ErrorKind::kResource, fmt::format("{}: cannot {}: {}", path.string(), verb, why));
}

std::string temporary_prefix(const fs::path& target) {
  return "." + target.filename().string() + ".haul-unfinished-";
}

// A descriptor that holds the folder's lock, or -1 when another process has it.
int lock_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

void remove_leftovers(const fs::path& target) {
  const std::string prefix = temporary_prefix(target);
  std::error_code code;
  for (fs::directory_iterator it(target.parent_path(), code), end; !code && it != end;
       it.increment(code)) {
    if (!it->path().filename().string().starts_with(prefix)) continue;
    const int lock = lock_folder(it->path());
    if (lock < 0) continue;
    std::error_code ignored;
    fs::remove_all(it->path(), ignored);
    ::close(lock);
  }
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& target)
    : target_(fs::absolute(target).lexically_normal()) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // "out/"
  std::error_code code;
  const fs::file_status status = fs::status(target_, code);
  if (fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(target_, code))) {
    throw Error(ErrorKind::kUsage, fmt::format("{}: it is there already", target_.string()),
                "name a folder that does not exist yet, or remove this one");
  }
  fs::create_directories(target_.parent_path(), code);
  if (code) fail("create", target_.parent_path(), code.message());
  remove_leftovers(target_);

  // Another process that cleans up may take a folder away before it is locked: try again then.
  for (int attempt = 0; attempt < 10 && lock_ < 0; ++attempt) {
    std::string pattern = (target_.parent_path() / (temporary_prefix(target_) + "XXXXXX")).string();
    if (::mkdtemp(pattern.data()) == nullptr) fail("create", target_, std::strerror(errno));
    temporary_ = pattern;
    ::chmod(pattern.c_str(), 0755);
    lock_ = lock_folder(temporary_);
    struct stat state {};
    if (lock_ >= 0 && (::fstat(lock_, &state) != 0 || state.st_nlink == 0)) {
      ::close(std::exchange(lock_, -1));
    }
  }
  if (lock_ < 0) fail("lock", temporary_, "another process works there");
}

OutputFolder::~OutputFolder() {
  if (lock_ < 0) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  ::close(lock_);
}

void OutputFolder::commit() {
  sync_folder(temporary_);
  // Takes the place of an empty folder, and of nothing else.
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail("move into place", target_, std::strerror(errno));
  }
  sync_folder(target_.parent_path());
  ::close(std::exchange(lock_, -1));
}

}  // namespace haul::core
