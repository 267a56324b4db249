// Many texts over many threads.

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "tokenizers/post_processor.h"
#include "tokenizers/state.h"

namespace haul {
namespace {

// Enough work to take at once that taking it costs nothing.
constexpr std::size_t kBlockBytes = std::size_t{256} << 10;

struct Block {
  std::size_t begin = 0;
  std::size_t end = 0;
  EncodedBatch result;
};

std::vector<Block> divide(std::span<const std::string_view> texts) {
  std::vector<Block> blocks;
  std::size_t bytes = kBlockBytes;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (bytes >= kBlockBytes) {
      blocks.push_back({i, i, {}});
      bytes = 0;
    }
    blocks.back().end = i + 1;
    bytes += texts[i].size() + 1;
  }
  return blocks;
}

// Runs work(block) for all blocks over the threads, and rethrows the first failure.
template <class Work>
void for_each_block(std::vector<Block>& blocks, unsigned threads, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < blocks.size(); i = next++) work(blocks[i]);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = blocks.size();
    }
  };
  std::vector<std::jthread> helpers;
  for (unsigned i = 1; i < threads && i < blocks.size(); ++i) helpers.emplace_back(run);
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
  for_each_block(blocks, threads, [&](Block& block) {
    const State::Lease scratch(*state_);
    std::size_t bytes = 0;
    for (std::size_t i = block.begin; i < block.end; ++i) bytes += texts[i].size();
    block.result.ids.reserve(bytes / 3 + 16);
    block.result.ends.reserve(block.end - block.begin);
    for (std::size_t i = block.begin; i < block.end; ++i) {
      state_->append_ids(texts[i], options, *scratch, block.result.ids);
      block.result.ends.push_back(block.result.ids.size());
    }
  });
  EncodedBatch batch;
  std::size_t total = 0;
  for (const Block& block : blocks) total += block.result.ids.size();
  batch.ids.reserve(total);
  batch.ends.reserve(texts.size());
  for (Block& block : blocks) {
    const std::size_t base = batch.ids.size();
    batch.ids.insert(batch.ids.end(), block.result.ids.begin(), block.result.ids.end());
    for (const std::size_t end : block.result.ends) batch.ends.push_back(base + end);
    block.result = EncodedBatch{};
  }
  if (options.truncate_and_pad && state_->pipeline.padding) {
    pad_batch(batch, *state_->pipeline.padding);
  }
  return batch;
}

}  // namespace haul
