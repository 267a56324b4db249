#pragma once

// The reads that wait for a reader thread, cut into chunks as the threads take them, and what is
// known of a read under way. All functions may be called from any thread.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "haul/bytes.h"
#include "runtime/tiers/direct_layout.h"
#include "runtime/tiers/disk_file.h"
#include "runtime/tiers/disk_reader.h"

namespace haul::runtime {

class ReadUnderWay {
 public:
  ReadUnderWay(DiskRead read, DiskFile& file);

  const DiskRead& read() const { return read_; }
  DiskFile& file() const { return file_; }
  Bytes end() const { return read_.offset + read_.size; }
  Bytes direct_end() const { return layout_.end; }
  // Where the byte at a file offset goes at first; see DirectLayout::shift.
  std::byte* place(Bytes offset) const { return read_.to + layout_.shift + offset - read_.offset; }

  // To be called before the first chunk is cut. A read that lies in the page cache, all of it, goes
  // to its place from there: one move of the bytes less.
  void begin();

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // The first failure counts. A chunk that failed must be told to chunk_ended too.
  void fail(std::exception_ptr error);
  // Calls `done` with the last byte.
  void chunk_ended(Bytes size);

 private:
  void end_read();

  DiskRead read_;
  DiskFile& file_;
  DirectLayout layout_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::atomic<Bytes> left_;
};

struct Chunk {
  std::shared_ptr<ReadUnderWay> read;
  Bytes begin = 0;  // file offsets
  Bytes end = 0;
};

class ReadQueue {
 public:
  explicit ReadQueue(Bytes chunk) : chunk_(chunk) {}

  void push(std::shared_ptr<ReadUnderWay> read);
  // The next chunk. None when there is none and `wait` is false, or when the queue was closed.
  std::optional<Chunk> take(bool wait);
  // Reads that have not begun fail; threads may still take what is there.
  void close();

 private:
  struct Waiting {
    std::shared_ptr<ReadUnderWay> read;
    Bytes next = 0;  // file offset
  };
  Bytes cut(const Waiting& waiting) const;

  Bytes chunk_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  bool closed_ = false;
};

}  // namespace haul::runtime
