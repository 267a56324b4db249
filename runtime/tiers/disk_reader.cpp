#include "runtime/tiers/disk_reader.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/tiers/disk_file.h"
#include "runtime/tiers/read_end.h"
#include "runtime/tiers/read_queue.h"
#include "runtime/tiers/read_ring.h"
#include "runtime/tiers/reader_thread.h"

namespace haul::runtime {
namespace {

// Four keep a disk busy, with io_uring two do; the others are for copying from the page cache, of
// which a core does 4 to 9 GB a second.
int default_threads(DiskReader::Way way) {
  if (way == DiskReader::Way::kPlain || !make_uring(1)) return 4;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2, 12);
}

// More at once than keeps a disk busy only makes each wait longer.
int default_depth(int threads) {
  return std::clamp((32 + threads - 1) / threads, 1, 8);
}

DiskReader::Options complete(DiskReader::Options options) {
  if (options.threads <= 0) options.threads = default_threads(options.way);
  options.chunk = std::clamp<Bytes>(options.chunk, kReadSlack, kGiB);
  options.chunk = (options.chunk + kReadSlack - 1) / kReadSlack * kReadSlack;
  if (options.depth <= 0) options.depth = default_depth(options.threads);
  options.depth = std::min(options.depth, 256);
  return options;
}

}  // namespace

class DiskReader::Threads {
 public:
  explicit Threads(const Options& options) : options_(complete(options)), queue_(options_.chunk) {
    try {
      for (int i = 0; i < options_.threads; ++i) {
        threads_.emplace_back([this] { run_reader_thread(options_, queue_, counters_); });
      }
    } catch (...) {
      join();
      throw;
    }
  }
  ~Threads() { join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int open(const std::filesystem::path& path) {
    const std::filesystem::path whole = std::filesystem::absolute(path);
    const std::lock_guard lock(mutex_);
    if (const auto known = numbers_.find(whole); known != numbers_.end()) {
      files_[static_cast<std::size_t>(known->second)]->check_unchanged();
      return known->second;
    }
    files_.push_back(std::make_unique<DiskFile>(whole, options_.way != Way::kPlain));
    const int number = static_cast<int>(files_.size()) - 1;
    numbers_.emplace(whole, number);
    return number;
  }

  DiskFile& file(int number) const {
    const std::lock_guard lock(mutex_);
    if (number < 0 || static_cast<std::size_t>(number) >= files_.size()) {
      throw Error(ErrorKind::kUsage, fmt::format("no file of number {} is open", number));
    }
    return *files_[static_cast<std::size_t>(number)];
  }

  void read(DiskRead read) {
    DiskFile& from = file(read.file);
    const Bytes offset = read.offset;
    const Bytes size = read.size;
    const bool inside = offset <= from.size() && size <= from.size() - offset;
    if (!inside) read.offset = read.size = 0;
    auto under_way = std::make_shared<ReadUnderWay>(std::move(read), from);
    if (!inside) {
      under_way->fail(std::make_exception_ptr(Error(
          ErrorKind::kCorrupt, fmt::format("{}: has {} bytes, too few for {} bytes at offset {}",
                                           from.path().string(), from.size(), size, offset))));
    }
    queue_.push(std::move(under_way));
  }

  Counts counts() const { return {counters_.direct, counters_.cached, counters_.requests}; }

 private:
  void join() {
    queue_.close();
    for (std::thread& thread : threads_) thread.join();
  }

  const Options options_;
  ReadQueue queue_;
  ReadCounters counters_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<DiskFile>> files_;
  std::map<std::filesystem::path, int> numbers_;
  std::vector<std::thread> threads_;
};

DiskReader::DiskReader() : DiskReader(Options{}) {}

DiskReader::DiskReader(const Options& options) : threads_(std::make_unique<Threads>(options)) {}

DiskReader::~DiskReader() = default;

int DiskReader::open(const std::filesystem::path& path) {
  return threads_->open(path);
}

Bytes DiskReader::file_size(int file) const {
  return threads_->file(file).size();
}

Bytes DiskReader::alignment(int file) const {
  return threads_->file(file).memory_align();
}

void DiskReader::read(DiskRead read) {
  threads_->read(std::move(read));
}

void DiskReader::read_now(int file, Bytes offset, Bytes size, std::byte* to) {
  ReadEnd end;
  read({file, offset, size, to, end.done()});
  end.wait();
}

DiskReader::Counts DiskReader::counts() const {
  return threads_->counts();
}

}  // namespace haul::runtime
