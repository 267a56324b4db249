#include "runtime/tiers/page_cache.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <stop_token>
#include <system_error>
#include <utility>

#include "core/base/machine.h"

namespace haul::runtime {
namespace {

constexpr long kCachestat = 451;  // the call's number on every architecture
constexpr int kSkipsAfterMiss = 32;

Bytes page_size() {
  static const Bytes size = static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
  return size;
}

// Pages of the range that are in the cache, or -1 where the kernel does not tell.
std::int64_t cached_pages(int descriptor, Bytes begin, Bytes end) {
  struct {
    std::uint64_t offset, size;
  } range{begin, end - begin};
  struct {
    std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } result{};
  if (::syscall(kCachestat, descriptor, &range, &result, 0) != 0) return -1;
  return static_cast<std::int64_t>(result.cached);
}

bool page_is_there(int descriptor, Bytes offset) {
  std::byte byte{};
  iovec to{&byte, 1};
  return ::preadv2(descriptor, &to, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

// Spreads a counter over all 64 bits.
std::uint64_t scatter(std::uint64_t number) {
  number *= 0x9e3779b97f4a7c15;
  return (number ^ (number >> 29)) * 0xbf58476d1ce4e5b9 >> 11;
}

void bring_in(const std::filesystem::path& path, const std::stop_token& stop) {
  constexpr Bytes kPiece = kMiB;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  std::vector<std::byte> piece(kPiece);
  PageCacheProbe probe;
  Bytes at = 0;
  const auto size = static_cast<Bytes>(std::max<off_t>(0, ::lseek(file, 0, SEEK_END)));
  while (at < size && !stop.stop_requested()) {
    const Bytes end = std::min(at + kPiece, size);
    if (!probe.holds(file, at, end)) {
      const ssize_t count = ::pread(file, piece.data(), end - at, static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
    }
    at = end;
  }
  ::close(file);
}

void bring_in_all(const std::vector<std::filesystem::path>& files, const std::stop_token& stop) {
  Bytes size = 0;
  for (const std::filesystem::path& file : files) {
    std::error_code absent;
    const auto of_it = std::filesystem::file_size(file, absent);
    if (!absent) size += of_it;
  }
  if (size > core::available_ram("/") / 4 * 3) return;
  for (const std::filesystem::path& file : files) bring_in(file, stop);
}

// The calling thread gives way to others, and its reads do where disks have an order of them.
void come_last() {
  constexpr int kThisThread = 1;
  constexpr int kIdle = 3 << 13;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 19);
  ::syscall(SYS_ioprio_set, kThisThread, 0, kIdle);
}

}  // namespace

PageCacheFiller::PageCacheFiller(std::vector<std::filesystem::path> files)
    : thread_([files = std::move(files)](const std::stop_token& stop) {
        try {
          come_last();
          bring_in_all(files, stop);
        } catch (const std::exception&) {
          // Nobody waits for it.
        }
      }) {}

bool PageCacheProbe::holds(int descriptor, Bytes begin, Bytes end) {
  if (begin >= end) return false;
  const Bytes first = begin / page_size();
  const Bytes pages = (end + page_size() - 1) / page_size() - first;
  if (asks_.load(std::memory_order_relaxed)) {
    const std::int64_t cached = cached_pages(descriptor, begin, end);
    if (cached >= 0) return static_cast<Bytes>(cached) >= pages;
    asks_.store(false, std::memory_order_relaxed);
  }
  if (skips_.load(std::memory_order_relaxed) > 0 &&
      skips_.fetch_sub(1, std::memory_order_relaxed) > 0) {
    return false;
  }
  // Elsewhere each time: the page that a miss brings in must not answer the next question.
  for (int i = 0; i < 2; ++i) {
    const auto sample = scatter(samples_.fetch_add(1, std::memory_order_relaxed) + 1);
    if (page_is_there(descriptor, (first + sample % pages) * page_size())) continue;
    skips_.store(kSkipsAfterMiss, std::memory_order_relaxed);
    return false;
  }
  return true;
}

}  // namespace haul::runtime
