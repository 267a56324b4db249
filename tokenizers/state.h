#pragma once

// What a Tokenizer is made of: the pipeline, the fast route through it where there is one, and
// scratch space for callers, handed from one to the next.

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "haul/tokenizer.h"
#include "tokenizers/fast_route.h"
#include "tokenizers/pipeline.h"

namespace haul {

struct Tokenizer::State {
  explicit State(tokenizers::Pipeline built);

  // Scratch space, given back on destruction.
  class Lease {
   public:
    explicit Lease(const State& state);
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    tokenizers::FastScratch& operator*() const { return *scratch_; }

   private:
    const State& state_;
    std::unique_ptr<tokenizers::FastScratch> scratch_;
  };

  // Ids of one sequence with special tokens and truncation, without padding. Appends.
  void append_ids(std::string_view text, const EncodeOptions& options,
                  tokenizers::FastScratch& scratch, std::vector<TokenId>& ids) const;

  tokenizers::Pipeline pipeline;
  std::optional<tokenizers::FastRoute> fast;
  // Special tokens before and after one sequence; nothing when they are not of that shape.
  struct Surround {
    std::vector<TokenId> before, after;
  };
  std::optional<Surround> surround;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<tokenizers::FastScratch>> idle_;
};

}  // namespace haul
