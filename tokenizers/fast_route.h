#pragma once

// Ids by the shortest way, for the pipelines that real models have: the text is cut where the
// plain route would cut it anyway, and the ids of each word are remembered. What a word costs once
// is the plain route; after that, a lookup. No allocation for a token or for a known word.

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizers/id_buffer.h"
#include "tokenizers/pipeline.h"
#include "tokenizers/scanners.h"
#include "tokenizers/word_cache.h"

namespace haul::tokenizers {

struct FastScratch {
  PlainScratch plain;
  std::shared_ptr<WordTable> words;
  // Words whose slots are on their way from memory, before their ids are asked for.
  std::array<WordTable::Query, 16> waiting;
  std::size_t waiting_count = 0;
  IdBuffer ids;
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
    kBlanks,     // before spaces between two ordinary characters
  };

  // Nothing when the pipeline has no such shape. Keeps a reference to it.
  static std::optional<FastRoute> find(const Pipeline& pipeline);

  // REQUIRES: well-formed text, shorter than 4 GiB. Appends.
  void encode(std::string_view text, FastScratch& scratch, std::vector<TokenId>& ids) const;

 private:
  // What a byte is where the text is cut at blanks.
  enum class Byte : std::uint8_t {
    kOther,  // may be anything, its character tells
    kPlain,  // an ASCII character that stays apart from blanks
    kBlank,  // a space, or what the normalizer turns into one
  };

  explicit FastRoute(const Pipeline& pipeline)
      : pipeline_(&pipeline), cache_(std::make_unique<WordCache>()) {}

  void find_blanks(const std::vector<SplitStep>& steps);
  void scan_segment(std::string_view text, FastScratch& scratch) const;
  void cut_bert_words(std::string_view text, FastScratch& scratch) const;
  void cut_at_blanks(std::string_view text, bool at_start, FastScratch& scratch) const;
  // A character that no normalizer joins with a space or turns into one.
  bool is_ordinary(const char* at) const;
  // The ids come with put_waiting(); until then the text must stay.
  void put_word(std::string_view word, std::uint32_t tag, const char* limit,
                FastScratch& scratch) const;
  // Appends to scratch.ids.
  void put_waiting(FastScratch& scratch) const;
  void put_unknown_word(const WordTable::Query& query, FastScratch& scratch) const;
  void compute_word(std::string_view word, std::uint32_t tag, FastScratch& scratch) const;
  // Whether the word, a blank and what follows it, is just a mark and the same to the model.
  bool is_plain_word(std::string_view word) const;

  const Pipeline* pipeline_;
  Cut cut_ = Cut::kScanner;
  Scanner scanner_ = Scanner::kGpt2;
  bool add_prefix_space_ = false;
  std::array<Byte, 256> bytes_{};
  bool joins_blanks_ = false;  // many in a row are as good as the last of them
  std::string mark_;           // what a blank before a word becomes; empty: not known
  std::unique_ptr<WordCache> cache_;
};

}  // namespace haul::tokenizers
