#include "runtime/tiers/reader_thread.h"

#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/tiers/read_ring.h"

namespace haul::runtime {
namespace {

constexpr int kDirectTries = 8;
constexpr int kTries = 1000;

enum class From { kPageCache, kDisk, kEither };  // without waiting; O_DIRECT; plainly

// A chunk on its way. [begin, end) of it is what is still wanted.
struct Request : Chunk {
  From from = From::kEither;
  int tries = 0;    // that ended with EINTR or EAGAIN
  Bytes asked = 0;  // file offset where the last request began
};

class ReaderThread {
 public:
  ReaderThread(const DiskReader::Options& options, ReadQueue& queue, ReadCounters& counters)
      : options_(options), queue_(queue), counters_(counters), plain_(make_plain_ring()) {
    if (options.way == DiskReader::Way::kAutomatic) direct_ = make_uring(options.depth);
    if (!direct_) direct_ = make_plain_ring();
    requests_.resize(static_cast<std::size_t>(direct_->depth()));
    for (Request& request : requests_) free_.push_back(&request);
  }

  void run() {
    for (;;) {
      while (!free_.empty()) {
        std::optional<Chunk> chunk = queue_.take(all_free());
        if (!chunk) break;
        start(std::move(*chunk));
        collect(false);
      }
      if (all_free()) return;
      collect(true);
    }
  }

 private:
  bool all_free() const { return free_.size() == requests_.size(); }

  void start(Chunk chunk) {
    ReadUnderWay& read = *chunk.read;
    if (read.failed() || chunk.begin == chunk.end) {
      read.chunk_ended(chunk.end - chunk.begin);
      return;
    }
    Request& request = *free_.back();
    free_.pop_back();
    static_cast<Chunk&>(request) = std::move(chunk);
    request.tries = 0;
    DiskFile& file = read.file();
    if (request.begin >= read.direct_end() || !file.direct()) {
      request.from = From::kEither;
    } else {
      const bool cached = file.in_page_cache(request.begin, request.end);
      request.from = cached ? From::kPageCache : From::kDisk;
    }
    ask(request);
  }

  void ask(Request& request) {
    const ReadUnderWay& read = *request.read;
    const Bytes align = request.from == From::kDisk ? read.file().offset_align() : 1;
    request.asked = request.begin / align * align;
    Bytes size = (request.end + align - 1) / align * align - request.asked;
    if (options_.fault) {
      const auto fault =
          options_.fault(read.read().file, request.begin, request.end - request.begin);
      if (fault && *fault != 0) {
        ended_.push_back({&request, -*fault});
        return;
      }
      if (fault) size = std::max(size / 2 / align * align, align);
    }
    counters_.requests.fetch_add(1, std::memory_order_relaxed);
    const std::span<std::byte> to(read.place(request.asked), size);
    if (request.from == From::kDisk) {
      direct_->begin(read.file().direct_descriptor(), request.asked, to, &request);
    } else if (request.from == From::kEither) {
      plain_->begin(read.file().cached_descriptor(), request.asked, to, &request);
    } else {
      ended_.push_back({&request, read_cached(read.file(), request.asked, to)});
    }
  }

  static std::int64_t read_cached(const DiskFile& file, Bytes offset, std::span<std::byte> to) {
    iovec where{to.data(), to.size()};
    const ssize_t count =
        ::preadv2(file.cached_descriptor(), &where, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    return count < 0 ? -errno : count;
  }

  // Handles requests that have ended; with `wait`, at least one if any is under way.
  void collect(bool wait) {
    plain_->collect(false, ended_);
    direct_->collect(wait && ended_.empty(), ended_);
    while (!ended_.empty()) {
      std::vector<ReadRing::Ended> now;
      now.swap(ended_);
      for (const auto& ended : now) handle(*static_cast<Request*>(ended.tag), ended.result);
      plain_->collect(false, ended_);
    }
  }

  void handle(Request& request, std::int64_t result) {
    if (result < 0) {
      handle_error(request, static_cast<int>(-result));
      return;
    }
    const Bytes reached = std::min(request.asked + static_cast<Bytes>(result), request.end);
    if (reached > request.begin) {
      const Bytes got = reached - request.begin;
      (request.from == From::kDisk ? counters_.direct : counters_.cached)
          .fetch_add(got, std::memory_order_relaxed);
      request.begin = reached;
      if (reached == request.end) {
        finish(request, got);
        return;
      }
      request.read->chunk_ended(got);
    } else if (request.from == From::kEither) {
      fail(request, ended_early(request));
      return;
    }
    if (request.from == From::kPageCache) {
      request.from = From::kDisk;
    } else if (result == 0 || reached % request.read->file().offset_align() != 0) {
      request.from = From::kEither;  // the end of the file, or a strange disk
    }
    ask(request);
  }

  void handle_error(Request& request, int code) {
    DiskFile& file = request.read->file();
    const bool again = code == EINTR || code == EAGAIN;
    if (request.from == From::kPageCache && (again || code == EOPNOTSUPP)) {
      request.from = From::kDisk;
    } else if (again && ++request.tries < kTries) {
      if (request.tries >= kDirectTries) request.from = From::kEither;
    } else if (code == EINVAL && request.from == From::kDisk) {
      file.give_up_direct();
      request.from = From::kEither;
    } else {
      fail(request,
           Error(ErrorKind::kResource,
                 fmt::format("{}: cannot read {} bytes at offset {}: {}", file.path().string(),
                             request.end - request.begin, request.begin, std::strerror(code))));
      return;
    }
    ask(request);
  }

  static Error ended_early(const Request& request) {
    const ReadUnderWay& read = *request.read;
    struct stat now {};
    ::fstat(read.file().cached_descriptor(), &now);
    return Error(ErrorKind::kCorrupt,
                 fmt::format("{}: ends before the {} bytes at offset {}: it had {} bytes when it "
                             "was opened and has {} now",
                             read.file().path().string(), read.read().size, read.read().offset,
                             read.file().size(), now.st_size),
                 "the file was cut short while it was in use");
  }

  void fail(Request& request, const Error& error) {
    request.read->fail(std::make_exception_ptr(error));
    finish(request, request.end - request.begin);
  }

  // The request's last `size` bytes have come, or never will.
  void finish(Request& request, Bytes size) {
    const auto read = std::move(request.read);
    free_.push_back(&request);
    read->chunk_ended(size);
  }

  const DiskReader::Options& options_;
  ReadQueue& queue_;
  ReadCounters& counters_;
  std::unique_ptr<ReadRing> plain_;
  std::unique_ptr<ReadRing> direct_;
  std::vector<Request> requests_;
  std::vector<Request*> free_;
  std::vector<ReadRing::Ended> ended_;
};

}  // namespace

void run_reader_thread(const DiskReader::Options& options, ReadQueue& queue,
                       ReadCounters& counters) {
  ReaderThread(options, queue, counters).run();
}

}  // namespace haul::runtime
