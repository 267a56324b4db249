// Many texts over many threads: each encodes blocks of texts into memory of its own, and when all
// are done brings what it has made to its place in the result.

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/pages.h"
#include "tokenizers/pages.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/state.h"

namespace haul {
namespace {

// Enough work to take at once that taking it costs nothing, and little enough that no thread is
// left with much when the others are done.
constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;  // of fresh memory, likewise

// The texts that one thread takes at once.
struct Block {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t bytes = 0;
  std::span<const TokenId> ids = {};  // where they were made
  std::size_t place = 0;              // of the first one in the result
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

// Runs work(index, thread) for all indices, and rethrows the first failure.
template <class Work>
void for_each(std::size_t count, std::size_t threads, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&](std::size_t thread) {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i, thread);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < threads && i < count; ++i) helpers.emplace_back(run, i);
  run(0);
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

// What one thread has made: lists of ids, in pages that no other thread touches.
class alignas(64) Share {
 public:
  void add(Block& block, std::span<const TokenId> ids) {
    if (ids.size() > room_) {
      room_ = std::max(kPieceBytes / sizeof(TokenId), ids.size());
      next_ = pieces_.emplace_back(room_ * sizeof(TokenId)).as<TokenId>();
    }
    std::copy(ids.begin(), ids.end(), next_);
    block.ids = {next_, ids.size()};
    next_ += ids.size();
    room_ -= ids.size();
    blocks_.push_back(&block);
  }

  // To the result, and gives the pages back.
  void move_to(EncodedBatch& batch) {
    for (const Block* const block : blocks_) {
      std::copy(block->ids.begin(), block->ids.end(), batch.ids.data() + block->place);
      for (std::size_t i = block->begin; i < block->end; ++i) batch.ends[i] += block->place;
    }
    pieces_.clear();
  }

  std::vector<TokenId> list;  // of the block that is being made

 private:
  std::vector<tokenizers::ZeroPages> pieces_;
  TokenId* next_ = nullptr;  // in the last piece
  std::size_t room_ = 0;     // of it
  std::vector<const Block*> blocks_;
};

// Fresh pages would be most of the work of the one thread that sizes the list.
void size_list(std::vector<TokenId>& ids, std::size_t size, std::size_t threads) {
  ids.reserve(size);
  auto* const memory = reinterpret_cast<char*>(ids.data());
  const std::size_t bytes = size * sizeof(TokenId);
  core::prefer_huge_pages(memory, bytes);
  for_each(bytes / kPieceBytes, threads, [&](std::size_t i, std::size_t) {
    core::bring_pages(memory + i * kPieceBytes, kPieceBytes);
  });
  ids.resize(size);
}

// Room for all texts, if they are like those that were encoded.
void expect(std::vector<TokenId>& ids, std::size_t bytes_encoded, std::size_t bytes_left) {
  const double share = static_cast<double>(bytes_left) / static_cast<double>(bytes_encoded);
  const auto more = static_cast<std::size_t>(1.25 * share * static_cast<double>(ids.size()));
  ids.reserve(ids.size() + more);
  core::prefer_huge_pages(ids.data() + ids.size(), more * sizeof(TokenId));
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
  EncodedBatch batch;
  batch.ends.resize(texts.size());
  const auto append = [&](const Block& block, std::vector<TokenId>& ids) {
    const State::Lease scratch(*state_);
    for (std::size_t i = block.begin; i < block.end; ++i) {
      state_->append_ids(texts[i], options, *scratch, ids);
      batch.ends[i] = ids.size();
    }
  };
  if (threads == 1 || blocks.size() <= 1) {
    std::size_t left = 0;
    for (const Block& block : blocks) left += block.bytes;
    for (const Block& block : blocks) {
      append(block, batch.ids);
      left -= block.bytes;
      if (&block == &blocks.front()) expect(batch.ids, block.bytes, left);
    }
  } else {
    std::vector<Share> shares(std::min<std::size_t>(threads, blocks.size()));
    for_each(blocks.size(), shares.size(), [&](std::size_t i, std::size_t thread) {
      Share& share = shares[thread];
      share.list.clear();
      append(blocks[i], share.list);
      share.add(blocks[i], share.list);
    });
    std::size_t size = 0;
    for (Block& block : blocks) block.place = std::exchange(size, size + block.ids.size());
    size_list(batch.ids, size, shares.size());
    for_each(shares.size(), shares.size(),
             [&](std::size_t i, std::size_t) { shares[i].move_to(batch); });
  }
  if (options.truncate_and_pad && state_->pipeline.padding) {
    pad_batch(batch, *state_->pipeline.padding);
  }
  return batch;
}

}  // namespace haul
