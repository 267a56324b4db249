#pragma once

// Reads ranges of files into memory at the disk's speed. A read is cut into chunks; a few threads
// keep several of them under way each, by io_uring and past the page cache (O_DIRECT). A chunk that
// lies in the page cache is copied from there, which is faster still. Where the kernel has no
// io_uring or the file system no O_DIRECT, the same threads use pread; that is found out at run
// time. All functions may be called from any thread.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "haul/bytes.h"
#include "haul/tensor_memory.h"

namespace haul::runtime {

// Memory that a read may overwrite before and behind the bytes asked for: an O_DIRECT read takes a
// superset.
using haul::kReadSlack;

struct DiskRead {
  int file = 0;      // from DiskReader::open
  Bytes offset = 0;  // of the first byte wanted
  Bytes size = 0;
  // Where the first byte wanted goes; a multiple of 64 suits who computes on it. The memory from
  // to - kReadSlack to to + size + kReadSlack must be writable and belong to this read until
  // `done`. Where `to` and `offset` agree modulo DiskReader::alignment the bytes go straight to
  // their place, else they are moved there in memory once they have come.
  std::byte* to = nullptr;
  // Called once, from a reader thread; no exception: the bytes are there. An Error names the file:
  //   kCorrupt   it ends before the bytes, or is not the file, unchanged, that was opened
  //   kResource  the disk or the system refused
  //   kUsage     the reader was destroyed before this read began
  // It must not throw, block for long or destroy the reader.
  std::function<void(std::exception_ptr)> done;
};

class DiskReader {
 public:
  enum class Way {
    kAutomatic,
    kPlain,  // pread through the page cache alone
  };
  struct Options {
    Way way = Way::kAutomatic;
    // Performance. Up to threads * depth * chunk bytes are asked of the disk at once; no memory is
    // taken for them but the callers' own.
    int threads = 0;         // 0: as many as cores, from 2 to 12; 4 without io_uring
    Bytes chunk = 4 * kMiB;  // rounded up to a multiple of kReadSlack
    // Chunks that a thread has under way at once, 1 without io_uring. 0: about 32 of all threads,
    // and 8 of one at most.
    int depth = 0;
    // For tests: asked before each request to the system, from a reader thread. No value: the
    // request is made. An errno: it fails with that. 0: it comes back with about half its bytes.
    std::function<std::optional<int>(int file, Bytes offset, Bytes size)> fault;
  };

  DiskReader();
  explicit DiskReader(const Options& options);
  // Reads under way are finished, reads that have not begun fail; each `done` has been called.
  ~DiskReader();
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  // Opens the file and remembers what it is: a file that is replaced, changed or cut short later is
  // an Error of each read after that. The same path gives the same number. Files stay open as long
  // as the reader lives. Throws Error.
  int open(const std::filesystem::path& path);

  Bytes file_size(int file) const;  // when it was opened
  // See DiskRead::to; a power of 2, and 1 where any place will do.
  Bytes alignment(int file) const;

  // Queues a read; reads begin in the order of the calls. Throws Error(kUsage) for a file that is
  // not open.
  void read(DiskRead read);
  // The same, and waits for it; throws its Error. Not to be called from a `done`.
  void read_now(int file, Bytes offset, Bytes size, std::byte* to);

  struct Counts {
    Bytes bytes_direct = 0;      // wanted bytes that came past the page cache
    Bytes bytes_cached = 0;      // wanted bytes that came through it
    std::uint64_t requests = 0;  // made to the system
  };
  Counts counts() const;

 private:
  class Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace haul::runtime
