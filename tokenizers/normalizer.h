#pragma once

// The first stage: text to normalized text. One class for each of tokenizer.json's normalizers and
// one for sentencepiece's own rules. Immutable; from any thread.

#include <memory>
#include <string>
#include <vector>

#include "tokenizers/charsmap.h"
#include "tokenizers/normal_forms.h"
#include "tokenizers/pattern.h"
#include "tokenizers/text.h"

namespace haul::tokenizers {

// How a normalizer acts on words that stand apart, for the fast route.
enum class Reach {
  kCharacter,   // each character for itself, but for the order of marks
  kNeighbours,  // also neighbours within a word, and runs of spaces
  kText,        // anything
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void normalize(Text& text) const = 0;
  // Whether the text surely stays as it is; false when in doubt.
  virtual bool keeps(std::string_view text) const = 0;
  virtual Reach reach() const = 0;
  // Whether this letter, digit or ASCII sign stays apart from spaces beside it.
  virtual bool keeps_apart(char32_t) const { return true; }
  // Whether spaces between characters that it keeps apart remain one space or more.
  virtual bool keeps_spaces() const { return true; }
  // Whether all runs of two such spaces or more become the same text.
  virtual bool joins_spaces() const { return false; }
  // Whether the first character left may stand for a later part of the original.
  virtual bool may_move_start() const { return true; }
};

std::unique_ptr<Normalizer> make_normal_form(NormalForm form);
std::unique_ptr<Normalizer> make_lowercase();
std::unique_ptr<Normalizer> make_strip(bool left, bool right);
std::unique_ptr<Normalizer> make_strip_accents();
std::unique_ptr<Normalizer> make_nmt();
std::unique_ptr<Normalizer> make_byte_level_normalizer();
std::unique_ptr<Normalizer> make_prepend(std::string prefix);

// What is known of a replacement beforehand.
struct ReplaceTraits {
  Reach reach = Reach::kText;
  bool keeps_spaces = false;
  bool joins_spaces = false;
};
std::unique_ptr<Normalizer> make_replace(std::unique_ptr<Pattern> pattern, std::string content,
                                         const ReplaceTraits& traits);
std::unique_ptr<Normalizer> make_precompiled(Charsmap charsmap);

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};
std::unique_ptr<Normalizer> make_bert_normalizer(const BertOptions& options);

std::unique_ptr<Normalizer> make_normalizer_sequence(
    std::vector<std::unique_ptr<Normalizer>> normalizers);

// The rules of a sentencepiece model, as its own library applies them.
struct SentencePieceRules {
  Charsmap charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool whitespace_is_suffix = false;
  std::vector<std::string> verbatim;  // kept as they are
};
std::unique_ptr<Normalizer> make_sentencepiece_normalizer(SentencePieceRules rules);

}  // namespace haul::tokenizers
