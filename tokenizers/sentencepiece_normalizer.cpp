// Normalization as sentencepiece's own library does it: the longest rule at each place, spaces
// joined, and a mark in their stead.

#include "tokenizers/byte_trie.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

class SentencePiece final : public Normalizer {
 public:
  explicit SentencePiece(SentencePieceRules rules) : rules_(std::move(rules)) {
    std::vector<std::pair<std::string_view, std::uint32_t>> keys;
    for (const std::string& text : rules_.verbatim) {
      keys.emplace_back(text, static_cast<std::uint32_t>(text.size()));
    }
    verbatim_ = ByteTrie(std::move(keys));
  }

  void normalize(Text& text) const override {
    const std::string old = text.bytes();
    std::size_t at = 0;
    Text result;
    result.clear(text.tracked());
    if (rules_.remove_extra_whitespaces) {
      while (at < old.size()) {
        const Rule rule = rule_at(std::string_view(old).substr(at));
        if (rule.result != " ") break;
        at += rule.size;
      }
    }
    if (at == old.size()) {
      text = std::move(result);
      return;
    }
    const std::string_view space = rules_.escape_whitespaces ? kMark : " ";
    const auto span = [&](std::size_t i) {
      return text.tracked() ? text.spans()[std::min(i, old.size() - 1)] : Span{};
    };
    if (rules_.add_dummy_prefix && !rules_.whitespace_is_suffix) result.append(space, span(at));
    bool after_space = rules_.remove_extra_whitespaces;
    while (at < old.size()) {
      const Rule rule = rule_at(std::string_view(old).substr(at));
      std::string_view part = rule.result;
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      for (std::size_t i = 0; i < part.size(); ++i) {
        result.append(part[i] == ' ' ? space : part.substr(i, 1), span(at));
      }
      if (!part.empty()) after_space = part.ends_with(' ');
      if (!rules_.remove_extra_whitespaces) after_space = false;
      at += rule.size;
    }
    if (rules_.remove_extra_whitespaces) {
      std::size_t end = result.size();
      while (std::string_view(result.bytes()).substr(0, end).ends_with(space)) end -= space.size();
      if (end < result.size()) {
        Text trimmed;
        trimmed.clear(result.tracked());
        trimmed.append(result, 0, end);
        result = std::move(trimmed);
      }
    }
    if (rules_.add_dummy_prefix && rules_.whitespace_is_suffix) {
      result.append(space, span(old.size() - 1));
    }
    text = std::move(result);
  }
  bool keeps(std::string_view text) const override { return text.empty(); }
  Reach reach() const override { return Reach::kText; }

 private:
  static constexpr std::string_view kMark = "\xE2\x96\x81";

  struct Rule {
    std::string_view result;
    std::size_t size = 0;  // of what it stands for
  };

  // What the front of the text becomes.
  Rule rule_at(std::string_view text) const {
    std::size_t longest = 0;
    std::uint32_t node = ByteTrie::root();
    for (std::size_t i = 0; i < text.size() && !rules_.verbatim.empty(); ++i) {
      node = verbatim_.child(node, static_cast<unsigned char>(text[i]));
      if (node == ByteTrie::kNone) break;
      if (verbatim_.value(node) != ByteTrie::kNone) longest = i + 1;
    }
    if (longest > 0) return {text.substr(0, longest), longest};
    if (const auto found = rules_.charsmap.longest(text)) return {found->replacement, found->size};
    const std::size_t size = utf8_size(text[0]);
    return {text.substr(0, size), size};
  }

  SentencePieceRules rules_;
  ByteTrie verbatim_;
};

}  // namespace

std::unique_ptr<Normalizer> make_sentencepiece_normalizer(SentencePieceRules rules) {
  return std::make_unique<SentencePiece>(std::move(rules));
}

}  // namespace haul::tokenizers
