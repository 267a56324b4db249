#include "tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizers/byte_level.h"
#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

// Replaces each piece without a token by the parts that find() reports for its bytes.
template <class Find>
void split_each(Pieces& pieces, Find&& find) {
  std::vector<Piece> list;
  list.reserve(pieces.list.size());
  std::vector<Match> matches;
  for (const Piece& piece : pieces.list) {
    if (piece.token != kNoToken) {
      list.push_back(piece);
      continue;
    }
    matches.clear();
    find(pieces.bytes(piece), matches);
    for (const Match& match : matches) {
      if (match.is_match || match.begin == match.end) continue;
      list.push_back({piece.begin + match.begin, piece.begin + match.end, kNoToken,
                      piece.at_start && match.begin == 0});
    }
  }
  pieces.list = std::move(list);
}

// Rewrites the text of each piece without a token: put(piece, result) appends what it becomes.
template <class Put>
void rewrite_each(Pieces& pieces, Put&& put) {
  Text result;
  result.clear(pieces.text.tracked());
  for (Piece& piece : pieces.list) {
    const std::size_t begin = result.size();
    if (piece.token != kNoToken) {
      result.append(pieces.text, piece.begin, piece.end);
    } else {
      put(piece, result);
    }
    piece.begin = begin;
    piece.end = result.size();
  }
  pieces.text = std::move(result);
}

// What the first character of a piece stands for.
Span first_span(const Pieces& pieces, const Piece& piece) {
  return pieces.text.tracked() ? pieces.text.spans()[piece.begin] : Span{};
}

class Bert final : public PreTokenizer {
 public:
  void split(Pieces& pieces) const override {
    const Unicode& properties = unicode();
    split_each(pieces, [&](std::string_view text, std::vector<Match>& matches) {
      std::size_t last = 0;
      for (std::size_t i = 0; i < text.size();) {
        const std::size_t size = utf8_size(text[i]);
        const std::uint16_t flags = properties.flags[utf8_point(&text[i])];
        if ((flags & (kIsSpace | kIsPunctuation)) != 0) {
          if (last < i) matches.push_back({last, i, false});
          if ((flags & kIsSpace) == 0) matches.push_back({i, i + size, false});
          last = i + size;
        }
        i += size;
      }
      if (last < text.size()) matches.push_back({last, text.size(), false});
    });
  }
  void describe(std::vector<SplitStep>& steps) const override {
    steps.push_back({.kind = SplitStep::Kind::kBert});
  }
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) regex_ = make_regex(kGpt2Pattern);
  }

  void split(Pieces& pieces) const override {
    if (add_prefix_space_) {
      rewrite_each(pieces, [&](const Piece& piece, Text& result) {
        if (pieces.bytes(piece)[0] != ' ') result.append(" ", first_span(pieces, piece));
        result.append(pieces.text, piece.begin, piece.end);
      });
    }
    if (regex_ != nullptr) {
      split_each(pieces, [&](std::string_view text, std::vector<Match>& matches) {
        regex_->find(text, matches);
        apply(SplitBehavior::kIsolated, matches);
      });
    }
    rewrite_each(pieces, [&](const Piece& piece, Text& result) {
      std::string character;
      for (std::size_t i = piece.begin; i < piece.end; ++i) {
        character.clear();
        append_byte_level(std::string_view(pieces.text.bytes()).substr(i, 1), character);
        result.append(character, pieces.text.tracked() ? pieces.text.spans()[i] : Span{});
      }
    });
  }
  void describe(std::vector<SplitStep>& steps) const override {
    steps.push_back({.kind = SplitStep::Kind::kByteLevel,
                     .add_prefix_space = add_prefix_space_,
                     .use_regex = regex_ != nullptr});
  }

 private:
  bool add_prefix_space_;
  std::unique_ptr<Pattern> regex_;
};

// Splits at characters that satisfy a predicate.
template <class Predicate>
class PointSplit final : public PreTokenizer {
 public:
  PointSplit(Predicate holds, SplitBehavior behavior, SplitStep step)
      : holds_(holds), behavior_(behavior), step_(std::move(step)) {}

  void split(Pieces& pieces) const override {
    split_each(pieces, [&](std::string_view text, std::vector<Match>& matches) {
      find_points(text, holds_, matches);
      apply(behavior_, matches);
    });
  }
  void describe(std::vector<SplitStep>& steps) const override { steps.push_back(step_); }

 private:
  Predicate holds_;
  SplitBehavior behavior_;
  SplitStep step_;
};

template <class Predicate>
std::unique_ptr<PreTokenizer> make_point_split(Predicate holds, SplitBehavior behavior,
                                               SplitStep step = {}) {
  return std::make_unique<PointSplit<Predicate>>(holds, behavior, std::move(step));
}

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(std::size_t length) : length_(length) {}

  void split(Pieces& pieces) const override {
    split_each(pieces, [&](std::string_view text, std::vector<Match>& matches) {
      std::size_t begin = 0;
      std::size_t count = 0;
      for (std::size_t i = 0; i < text.size();) {
        i += utf8_size(text[i]);
        if (++count % length_ == 0 || i == text.size()) {
          matches.push_back({begin, i, false});
          begin = i;
        }
      }
    });
  }

 private:
  std::size_t length_;
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme, bool split)
      : replacement_(replacement), scheme_(scheme), split_(split) {
    append_utf8(mark_, replacement);
  }

  void split(Pieces& pieces) const override {
    rewrite_each(pieces, [&](const Piece& piece, Text& result) {
      const std::string_view text = pieces.bytes(piece);
      const bool tracked = pieces.text.tracked();
      const bool has_mark = text[0] == ' ' || text.starts_with(mark_);
      const bool at_start = tracked ? first_span(pieces, piece).begin == 0 : piece.at_start;
      if (!has_mark &&
          (scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && at_start))) {
        result.append(mark_, first_span(pieces, piece));
      }
      std::size_t done = 0;
      for (std::size_t i = text.find(' '); i != std::string_view::npos; i = text.find(' ', done)) {
        result.append(pieces.text, piece.begin + done, piece.begin + i);
        result.append(mark_, tracked ? pieces.text.spans()[piece.begin + i] : Span{});
        done = i + 1;
      }
      result.append(pieces.text, piece.begin + done, piece.end);
    });
    if (!split_) return;
    split_each(pieces, [&](std::string_view text, std::vector<Match>& matches) {
      find_points(
          text, [this](char32_t c) { return c == replacement_; }, matches);
      apply(SplitBehavior::kMergedWithNext, matches);
    });
  }
  bool needs_start() const override { return scheme_ == PrependScheme::kFirst; }
  void describe(std::vector<SplitStep>& steps) const override {
    steps.push_back({.kind = SplitStep::Kind::kMetaspace, .splits = split_, .text = mark_});
  }

 private:
  char32_t replacement_;
  PrependScheme scheme_;
  bool split_;
  std::string mark_;
};

class Split final : public PreTokenizer {
 public:
  Split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert,
        std::string expression)
      : pattern_(std::move(pattern)),
        behavior_(behavior),
        invert_(invert),
        expression_(std::move(expression)) {}

  void split(Pieces& pieces) const override {
    split_each(pieces, [&](std::string_view text, std::vector<Match>& matches) {
      pattern_->find(text, matches);
      if (invert_) {
        for (Match& match : matches) match.is_match = !match.is_match;
      }
      apply(behavior_, matches);
    });
  }
  void describe(std::vector<SplitStep>& steps) const override {
    const bool keeps_matches = (behavior_ == SplitBehavior::kIsolated && !invert_) ||
                               (behavior_ == SplitBehavior::kRemoved && invert_);
    steps.push_back({.kind = SplitStep::Kind::kPattern,
                     .keeps_matches = keeps_matches,
                     .drops_rest = behavior_ == SplitBehavior::kRemoved,
                     .text = expression_});
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
  std::string expression_;
};

class UnicodeScripts final : public PreTokenizer {
 public:
  void split(Pieces& pieces) const override {
    const Unicode& properties = unicode();
    split_each(pieces, [&](std::string_view text, std::vector<Match>& matches) {
      constexpr int kNone = -1;
      int last = kNone;
      std::size_t begin = text.size();
      for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
        const int script = properties.scripts[utf8_point(&text[i])];
        if (script == 0) continue;
        if (script != last) {
          if (last != kNone) matches.push_back({begin, i, false});
          begin = i;
        }
        last = script;
      }
      // Characters of any script at the front belong to no piece.
      if (begin < text.size()) matches.push_back({begin, text.size(), false});
    });
  }
};

class Whitespace final : public PreTokenizer {
 public:
  void split(Pieces& pieces) const override {
    const Unicode& properties = unicode();
    split_each(pieces, [&](std::string_view text, std::vector<Match>& matches) {
      std::size_t begin = 0;
      int last = 0;  // 0 space, 1 word, 2 other
      for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
        const std::uint16_t flags = properties.flags[utf8_point(&text[i])];
        const int kind = (flags & kIsWord) != 0 ? 1 : (flags & kIsSpace) != 0 ? 0 : 2;
        if (kind != last) {
          if (last != 0) matches.push_back({begin, i, false});
          begin = i;
        }
        last = kind;
      }
      if (last != 0) matches.push_back({begin, text.size(), false});
    });
  }
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}

  void split(Pieces& pieces) const override {
    for (const auto& part : parts_) part->split(pieces);
  }
  bool needs_start() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->needs_start(); });
  }
  void describe(std::vector<SplitStep>& steps) const override {
    for (const auto& part : parts_) part->describe(steps);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer() {
  return std::make_unique<Bert>();
}
std::unique_ptr<PreTokenizer> make_byte_level(bool add_prefix_space, bool use_regex) {
  return std::make_unique<ByteLevel>(add_prefix_space, use_regex);
}
std::unique_ptr<PreTokenizer> make_delimiter(char32_t delimiter) {
  return make_point_split([delimiter](char32_t c) { return c == delimiter; },
                          SplitBehavior::kRemoved);
}
std::unique_ptr<PreTokenizer> make_digits(bool individual) {
  return make_point_split([](char32_t c) { return unicode().is(c, kIsNumeric); },
                          individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                          {.kind = SplitStep::Kind::kDigits, .individual = individual});
}
std::unique_ptr<PreTokenizer> make_fixed_length(std::size_t length) {
  return std::make_unique<FixedLength>(length);
}
std::unique_ptr<PreTokenizer> make_metaspace(char32_t replacement, PrependScheme scheme,
                                             bool split) {
  return std::make_unique<Metaspace>(replacement, scheme, split);
}
std::unique_ptr<PreTokenizer> make_punctuation(SplitBehavior behavior) {
  return make_point_split([](char32_t c) { return unicode().is(c, kIsPunctuation); }, behavior);
}
std::unique_ptr<PreTokenizer> make_split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior,
                                         bool invert, std::string expression) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert, std::move(expression));
}
std::unique_ptr<PreTokenizer> make_unicode_scripts() {
  return std::make_unique<UnicodeScripts>();
}
std::unique_ptr<PreTokenizer> make_whitespace() {
  return std::make_unique<Whitespace>();
}
std::unique_ptr<PreTokenizer> make_whitespace_split() {
  return make_point_split([](char32_t c) { return is_space(c); }, SplitBehavior::kRemoved,
                          {.kind = SplitStep::Kind::kWhitespaceSplit});
}
std::unique_ptr<PreTokenizer> make_pre_tokenizer_sequence(
    std::vector<std::unique_ptr<PreTokenizer>> parts) {
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace haul::tokenizers
