#pragma once

// Ids by the shortest way, for the pipelines that real models have: the text is cut where the
// plain route would cut it anyway, and the ids of each word are remembered. What a word costs once
// is the plain route; after that, a lookup. No allocation for a token or for a known word.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizers/pipeline.h"
#include "tokenizers/scanners.h"
#include "tokenizers/word_cache.h"

namespace haul::tokenizers {

struct FastScratch {
  PlainScratch plain;
  WordCache cache;
  std::vector<Piece> segments;
  std::vector<Piece> found;
  std::vector<TokenId> word_ids;
  Text text;
  std::string copy;
  std::string mapped;
};

class FastRoute {
 public:
  // How the text is cut.
  enum class Cut {
    kScanner,    // into the pieces of a byte-level pattern
    kBertWords,  // at ASCII spaces and punctuation
    kSpaces,     // before spaces between two ordinary characters
  };

  // Nothing when the pipeline has no such shape. Keeps a reference to it.
  static std::optional<FastRoute> find(const Pipeline& pipeline);

  // REQUIRES: well-formed text, shorter than 4 GiB. Appends.
  void encode(std::string_view text, FastScratch& scratch, std::vector<TokenId>& ids) const;

 private:
  explicit FastRoute(const Pipeline& pipeline) : pipeline_(&pipeline) {}

  void scan_segment(std::string_view text, FastScratch& scratch, std::vector<TokenId>& ids) const;
  void cut_bert_words(std::string_view text, FastScratch& scratch, std::vector<TokenId>& ids) const;
  void cut_at_spaces(std::string_view text, bool at_start, FastScratch& scratch,
                     std::vector<TokenId>& ids) const;
  void put_word(std::string_view word, std::uint32_t tag, const char* limit, FastScratch& scratch,
                std::vector<TokenId>& ids) const;
  void compute_word(std::string_view word, std::uint32_t tag, FastScratch& scratch) const;

  const Pipeline* pipeline_;
  Cut cut_ = Cut::kScanner;
  Scanner scanner_ = Scanner::kGpt2;
  bool add_prefix_space_ = false;
};

}  // namespace haul::tokenizers
