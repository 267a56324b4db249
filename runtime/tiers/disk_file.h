#pragma once

// One file that DiskReader has open, through the page cache and, where the file system can, past
// it. Everything but the constructor may be called from any thread.

#include <sys/stat.h>

#include <atomic>
#include <filesystem>

#include "haul/bytes.h"
#include "runtime/tiers/page_cache.h"

namespace haul::runtime {

class DiskFile {
 public:
  // Throws Error. With `direct`, O_DIRECT is tried.
  DiskFile(std::filesystem::path path, bool direct);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  Bytes size() const;  // when it was opened
  int cached_descriptor() const { return cached_; }
  int direct_descriptor() const { return direct_; }

  // Whether O_DIRECT is to be used. Reads of files that refuse it only when read turn it off.
  bool direct() const { return direct_works_.load(std::memory_order_relaxed); }
  void give_up_direct() { direct_works_.store(false, std::memory_order_relaxed); }
  // What offsets and memory of O_DIRECT reads must be multiples of: powers of 2, 1 without it.
  Bytes offset_align() const { return offset_align_; }
  Bytes memory_align() const { return memory_align_; }

  bool in_page_cache(Bytes begin, Bytes end) { return probe_.holds(cached_, begin, end); }

  // Throws Error(kCorrupt) unless the path still names the file that was opened, with the size and
  // the time of change that it had. One call of stat.
  void check_unchanged() const;

 private:
  void open_direct();

  std::filesystem::path path_;
  int cached_ = -1;
  int direct_ = -1;
  std::atomic<bool> direct_works_{false};
  Bytes offset_align_ = 1;
  Bytes memory_align_ = 1;
  struct stat opened_ {};
  PageCacheProbe probe_;
};

}  // namespace haul::runtime
