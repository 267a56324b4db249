// Many texts over many threads.

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "core/base/pages.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/state.h"

namespace haul {
namespace {

// Enough work to take at once that taking it costs nothing, and little enough that no thread is
// left with much when the others are done.
constexpr std::size_t kBlockBytes = std::size_t{64} << 10;

// The texts that one thread takes at once, and their ids.
struct Block {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t bytes = 0;
  std::vector<TokenId> ids = {};
  std::vector<std::size_t> ends = {};
};

std::vector<Block> divide(std::span<const std::string_view> texts) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (blocks.empty() || blocks.back().bytes >= kBlockBytes) blocks.push_back({i, i});
    blocks.back().end = i + 1;
    blocks.back().bytes += texts[i].size() + 1;
  }
  return blocks;
}

// Joins blocks in order as they are done, on whichever thread finds the next one so; the space that
// a joined one took serves another.
class Joiner {
 public:
  Joiner(std::vector<Block>& blocks, unsigned threads)
      : blocks_(blocks), threads_(threads), is_done_(blocks.size()) {
    for (const Block& block : blocks) bytes_left_ += block.bytes;
    if (!blocks.empty()) batch_.ends.reserve(blocks.back().end);
  }

  // Gives the block space of one that was joined.
  void prepare(Block& block) {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return;
    block.ids = std::move(spare_.back());
    spare_.pop_back();
  }

  void finish(std::size_t index) {
    {
      const std::lock_guard lock(mutex_);
      is_done_[index] = true;
      if (is_joining_) return;  // who joins will see it
      is_joining_ = true;
    }
    while (Block* block = take_next()) join(*block);
  }

  EncodedBatch take() { return std::move(batch_); }

 private:
  // The next block to join, or nothing and is_joining_ is over.
  Block* take_next() {
    const std::lock_guard lock(mutex_);
    if (joined_ > 0 && blocks_[joined_ - 1].ids.capacity() > 0) {
      spare_.push_back(std::move(blocks_[joined_ - 1].ids));
      spare_.back().clear();
    }
    is_joining_ = joined_ < blocks_.size() && is_done_[joined_];
    return is_joining_ ? &blocks_[joined_++] : nullptr;
  }

  void join(const Block& block) {
    const std::size_t base = batch_.ids.size();
    if (batch_.ids.capacity() - base < block.ids.size()) reserve(block);
    bytes_left_ -= block.bytes;
    batch_.ids.insert(batch_.ids.end(), block.ids.begin(), block.ids.end());
    for (const std::size_t end : block.ends) batch_.ends.push_back(base + end);
  }

  // Room for this block and, if they are like it, for all that are left.
  void reserve(const Block& block) {
    const double share = static_cast<double>(bytes_left_) / static_cast<double>(block.bytes);
    const auto expected =
        static_cast<std::size_t>(1.25 * share * static_cast<double>(block.ids.size()));
    batch_.ids.reserve(batch_.ids.size() + std::max(expected, block.ids.size()));
    auto* const memory = reinterpret_cast<char*>(batch_.ids.data() + batch_.ids.size());
    const std::size_t bytes = (batch_.ids.capacity() - batch_.ids.size()) * sizeof(TokenId);
    core::prefer_huge_pages(memory, bytes);
    // One thread joins, and fresh pages would be most of its work: others bring them.
    const std::size_t helpers = std::min<std::size_t>(threads_ / 2, bytes / kPagesToBring);
    for (std::size_t i = 0; i < helpers; ++i) {
      const std::size_t begin = bytes / helpers * i;
      bringing_.emplace_back([=] { core::bring_pages(memory + begin, bytes / helpers); });
    }
  }

  static constexpr std::size_t kPagesToBring = std::size_t{8} << 20;  // worth a thread

  std::vector<Block>& blocks_;
  unsigned threads_;
  std::size_t bytes_left_ = 0;  // of the texts that are not joined
  std::vector<bool> is_done_;
  std::size_t joined_ = 0;  // blocks, of which the last may be in work
  bool is_joining_ = false;
  EncodedBatch batch_;  // of the thread that joins
  std::mutex mutex_;
  std::vector<std::vector<TokenId>> spare_;
  std::vector<std::jthread> bringing_;
};

// Runs work(index) for all blocks over the threads, and rethrows the first failure.
template <class Work>
void for_each_block(std::size_t count, unsigned threads, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  std::vector<std::jthread> helpers;
  for (unsigned i = 1; i < threads && i < count; ++i) helpers.emplace_back(run);
  run();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

void pad_batch(EncodedBatch& batch, const tokenizers::Padding& padding) {
  std::size_t longest = 0;
  std::size_t begin = 0;
  for (const std::size_t end : batch.ends) {
    longest = std::max(longest, end - begin);
    begin = end;
  }
  // Each is first padded alone, which a multiple or a fixed length makes longer.
  const std::size_t length =
      tokenizers::padded_length(tokenizers::padded_length(longest, padding), padding);
  EncodedBatch padded;
  begin = 0;
  for (const std::size_t end : batch.ends) {
    std::vector<TokenId> ids(batch.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                             batch.ids.begin() + static_cast<std::ptrdiff_t>(end));
    tokenizers::pad_ids(ids, length, padding);
    padded.ids.insert(padded.ids.end(), ids.begin(), ids.end());
    padded.ends.push_back(padded.ids.size());
    begin = end;
  }
  batch = std::move(padded);
}

}  // namespace

EncodedBatch Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                     const EncodeOptions& options, unsigned threads) const {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Block> blocks = divide(texts);
  Joiner joiner(blocks, threads);
  for_each_block(blocks.size(), threads, [&](std::size_t index) {
    const State::Lease scratch(*state_);
    Block& block = blocks[index];
    joiner.prepare(block);
    block.ends.reserve(block.end - block.begin);
    for (std::size_t i = block.begin; i < block.end; ++i) {
      state_->append_ids(texts[i], options, *scratch, block.ids);
      block.ends.push_back(block.ids.size());
    }
    joiner.finish(index);
  });
  EncodedBatch batch = joiner.take();
  if (options.truncate_and_pad && state_->pipeline.padding) {
    pad_batch(batch, *state_->pipeline.padding);
  }
  return batch;
}

}  // namespace haul
