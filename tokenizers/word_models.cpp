// WordPiece and WordLevel: the models that look whole words and their longest parts up.

#include <algorithm>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/model.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

[[noreturn]] void refuse_unknown(std::string_view unk_token) {
  throw Error(ErrorKind::kUnsupported,
              fmt::format("the unknown token '{}' is not in the vocabulary", unk_token));
}

class WordPiece final : public Model {
 public:
  WordPiece(Vocabulary vocabulary, WordPieceOptions options)
      : Model(std::move(vocabulary)), options_(std::move(options)) {
    unk_ = this->vocabulary().find(options_.unk_token);
  }

  void tokenize(std::string_view piece, std::vector<Token>& tokens,
                ModelScratch& scratch) const override {
    const std::size_t first = tokens.size();
    const auto give_up = [&] {
      if (!unk_) refuse_unknown(options_.unk_token);
      tokens.resize(first);
      tokens.push_back({*unk_, 0, static_cast<std::uint32_t>(piece.size()), false});
    };
    if (piece.size() > options_.max_input_chars_per_word &&
        count_points(piece) > options_.max_input_chars_per_word) {
      return give_up();
    }
    const std::string& prefix = options_.continuing_subword_prefix;
    for (std::size_t begin = 0; begin < piece.size();) {
      std::string_view candidate;  // the longest that can be in the vocabulary, then shorter ones
      std::size_t skipped = 0;
      if (begin == 0) {
        candidate = piece.substr(0, vocabulary().longest());
      } else {
        scratch.text.assign(prefix);
        scratch.text.append(piece.substr(begin, vocabulary().longest()));
        candidate = std::string_view(scratch.text).substr(0, vocabulary().longest());
        skipped = prefix.size();
      }
      std::optional<std::uint32_t> id;
      while (candidate.size() > skipped) {
        if (is_boundary(piece, begin + candidate.size() - skipped)) {
          id = vocabulary().find(candidate);
          if (id) break;
        }
        candidate.remove_suffix(1);
      }
      if (!id) return give_up();
      const std::size_t end = begin + candidate.size() - skipped;
      tokens.push_back(
          {*id, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), false});
      begin = end;
    }
  }

  bool splits_before(std::string_view) const override { return false; }

 private:
  static bool is_boundary(std::string_view text, std::size_t at) {
    return at == text.size() || !is_continuation(text[at]);
  }

  WordPieceOptions options_;
  std::optional<std::uint32_t> unk_;
};

class WordLevel final : public Model {
 public:
  WordLevel(Vocabulary vocabulary, std::string unk_token)
      : Model(std::move(vocabulary)), unk_token_(std::move(unk_token)) {
    unk_ = this->vocabulary().find(unk_token_);
  }

  void tokenize(std::string_view piece, std::vector<Token>& tokens, ModelScratch&) const override {
    std::optional<std::uint32_t> id = vocabulary().find(piece);
    if (!id) id = unk_;
    if (!id) refuse_unknown(unk_token_);
    tokens.push_back({*id, 0, static_cast<std::uint32_t>(piece.size()), false});
  }

  bool splits_before(std::string_view) const override { return false; }

 private:
  std::string unk_token_;
  std::optional<std::uint32_t> unk_;
};

}  // namespace

std::unique_ptr<Model> make_word_piece(Vocabulary vocabulary, WordPieceOptions options) {
  return std::make_unique<WordPiece>(std::move(vocabulary), std::move(options));
}

std::unique_ptr<Model> make_word_level(Vocabulary vocabulary, std::string unk_token) {
  return std::make_unique<WordLevel>(std::move(vocabulary), std::move(unk_token));
}

}  // namespace haul::tokenizers
