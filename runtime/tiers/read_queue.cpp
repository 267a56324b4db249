#include "runtime/tiers/read_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::runtime {

ReadUnderWay::ReadUnderWay(DiskRead read, DiskFile& file)
    : read_(std::move(read)), file_(file), left_(read_.size) {
  if (!file.direct()) return;
  layout_ = lay_out_direct(read_.offset, read_.size, reinterpret_cast<std::uintptr_t>(read_.to),
                           file.offset_align(), file.memory_align());
}

void ReadUnderWay::begin() {
  if (layout_.shift != 0 && file_.in_page_cache(read_.offset, end())) layout_ = {};
}

void ReadUnderWay::fail(std::exception_ptr error) {
  if (!failed_.exchange(true)) error_ = std::move(error);
}

void ReadUnderWay::chunk_ended(Bytes size) {
  if (left_.fetch_sub(size, std::memory_order_acq_rel) == size) end_read();
}

void ReadUnderWay::end_read() {
  if (!failed()) {
    if (layout_.shift != 0) std::memmove(read_.to, read_.to + layout_.shift, read_.size);
    try {
      file_.check_unchanged();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  read_.done(std::exchange(error_, nullptr));
}

void ReadQueue::push(std::shared_ptr<ReadUnderWay> read) {
  const Bytes begin = read->read().offset;
  const std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(read), begin});
  changed_.notify_all();
}

std::optional<Chunk> ReadQueue::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
  if (waiting_.empty()) return std::nullopt;
  Waiting& first = waiting_.front();
  if (first.next == first.read->read().offset) first.read->begin();
  Chunk chunk{first.read, first.next, cut(first)};
  first.next = chunk.end;
  if (chunk.end == chunk.read->end()) waiting_.pop_front();
  return chunk;
}

Bytes ReadQueue::cut(const Waiting& waiting) const {
  const ReadUnderWay& read = *waiting.read;
  if (read.failed()) return read.end();
  const Bytes end = waiting.next < read.direct_end() ? read.direct_end() : read.end();
  const Bytes left = end - waiting.next;
  if (left <= chunk_) return end;
  // Equal chunks rather than a small last one, cut where every alignment allows it.
  const Bytes chunks = (left + chunk_ - 1) / chunk_;
  const Bytes next = waiting.next + (left + chunks - 1) / chunks;
  return std::min((next + kReadSlack - 1) / kReadSlack * kReadSlack, end);
}

void ReadQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const Waiting& waiting : waiting_) {
    const DiskRead& read = waiting.read->read();
    if (waiting.next != read.offset) continue;
    waiting.read->fail(std::make_exception_ptr(
        Error(ErrorKind::kUsage, fmt::format("{}: the reader was closed before a read began",
                                             waiting.read->file().path().string()))));
  }
  changed_.notify_all();
}

}  // namespace haul::runtime
