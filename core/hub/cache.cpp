#include "core/hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "core/base/file.h"
#include "core/hub/name.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kMaxRef = 1024;

[[noreturn]] void fail(const fs::path& path, const char* verb, int code) {
  throw Error(ErrorKind::kResource,
              fmt::format("{}: cannot {}: {}", path.string(), verb, std::strerror(code)),
              code == EACCES || code == EROFS
                  ? "HF_HUB_CACHE may name a folder that you can write to"
                  : "");
}

void make_folders(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code) fail(path, "create the folder", code.value());
}

// The folder of root/file, made where it is missing. Each step must be a folder itself, never a
// link that leads elsewhere.
void make_parents(const fs::path& root, const fs::path& file) {
  make_folders(root);
  fs::path folder = root;
  for (const fs::path& part : file.parent_path()) {
    folder /= part;
    if (::mkdir(folder.c_str(), 0777) == 0) continue;
    struct stat status {};
    if (errno != EEXIST) fail(folder, "create the folder", errno);
    if (::lstat(folder.c_str(), &status) != 0) fail(folder, "read", errno);
    if (!S_ISDIR(status.st_mode)) fail(folder, "use as a folder", ENOTDIR);
  }
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string random_suffix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

ModelCache::ModelCache(const fs::path& cache, const std::string& repository)
    : folder_(cache / cache_folder_name(repository)),
      locks_(cache / ".locks" / cache_folder_name(repository)) {}

std::optional<std::string> ModelCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path ref = folder_ / "refs" / revision;
  if (!is_file(ref)) return std::nullopt;
  std::string commit = read_file(ref, kMaxRef);
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r')) commit.pop_back();
  if (!is_commit(commit)) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: holds '{}' instead of a commit", ref.string(), printable(commit)),
                "remove the file and try again");
  }
  return commit;
}

fs::path ModelCache::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

std::optional<fs::path> ModelCache::find(const std::string& commit, const std::string& file) const {
  fs::path path = snapshot(commit) / file;
  if (!is_file(path)) return std::nullopt;
  return path;
}

bool ModelCache::known_absent(const std::string& commit, const std::string& file) const {
  return is_file(folder_ / ".no_exist" / commit / file);
}

fs::path ModelCache::blob(const std::string& etag) const {
  return folder_ / "blobs" / etag;
}

bool ModelCache::has_blob(const std::string& etag) const {
  return is_file(blob(etag));
}

void ModelCache::remember_commit(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path ref = folder_ / "refs" / revision;
  if (is_file(ref) && read_file(ref, kMaxRef) == commit) return;
  make_parents(folder_ / "refs", revision);
  write_file_atomically(ref, commit);
}

void ModelCache::remember_absent(const std::string& commit, const std::string& file) const {
  const fs::path root = folder_ / ".no_exist" / commit;
  if (is_file(root / file)) return;
  make_parents(root, file);
  write_file_atomically(root / file, "");
}

void ModelCache::link(const std::string& commit, const std::string& file,
                      const std::string& etag) const {
  const fs::path root = snapshot(commit);
  const fs::path path = root / file;
  if (is_file(path)) return;
  make_parents(root, file);
  const fs::path target = fs::path(blob(etag)).lexically_relative(path.parent_path());
  const fs::path temporary = path.parent_path() / ("." + random_suffix());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    // A file system without links: the content itself takes the place, as huggingface_hub has it.
    if (errno != EPERM && errno != EOPNOTSUPP) fail(path, "link", errno);
    if (::rename(blob(etag).c_str(), path.c_str()) != 0) fail(path, "move into place", errno);
    return;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary.c_str());
    fail(path, "link", code);
  }
}

BlobLock::BlobLock(const ModelCache& cache, const std::string& etag) {
  make_folders(cache.locks_);
  const fs::path path = cache.locks_ / (etag + ".lock");
  while (true) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (descriptor_ < 0) fail(path, "open", errno);
    int code = 0;
    int how = LOCK_EX | LOCK_NB;
    do {
      code = ::flock(descriptor_, how) == 0 ? 0 : errno;
      if (code == EWOULDBLOCK) {
        fmt::print(stderr, "waiting for another download of the same file\n");
        how = LOCK_EX;
      }
    } while (code == EINTR || code == EWOULDBLOCK);
    if (code != 0) return;
    // Its last holder may have removed the file: then the lock is on nothing that others see.
    struct stat held {};
    struct stat named {};
    if (::fstat(descriptor_, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
      return;
    }
    ::close(descriptor_);
  }
}

BlobLock::~BlobLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace haul::core
