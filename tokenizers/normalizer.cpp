#include "tokenizers/normalizer.h"

#include <algorithm>
#include <utility>

#include "tokenizers/byte_level.h"
#include "tokenizers/graphemes.h"
#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

bool is_ascii(std::string_view text) {
  return ascii_prefix(text) == text.size();
}

// Drops the characters for which keep() is false and maps the others.
template <class Keep, class Map>
void filter(Text& text, Keep&& keep, Map&& map) {
  std::vector<Change>& changes = text.changes();
  std::size_t skipped = 0;
  int removed = 0;
  for_each_point(text.bytes(), [&](char32_t point) {
    if (!keep(point)) {
      ++removed;
      return;
    }
    if (changes.empty()) {
      skipped = static_cast<std::size_t>(removed);
    } else {
      changes.back().change = -removed;
    }
    removed = 0;
    changes.push_back({map(point), 0});
  });
  if (!changes.empty()) changes.back().change = -removed;
  text.transform(changes, skipped);
}

void push_lower(char32_t point, std::vector<Change>& changes) {
  changes.push_back({to_lower(point), 0});
  if (point == kDottedCapitalI) changes.push_back({kCombiningDotAbove, 1});
}

void lowercase(Text& text) {
  std::vector<Change>& changes = text.changes();
  for_each_point(text.bytes(), [&](char32_t point) { push_lower(point, changes); });
  text.transform(changes);
}

void to_normal_form(NormalForm form, Text& text) {
  if (is_surely_normal(form, text.bytes())) return;
  std::vector<Change>& changes = text.changes();
  normalize(form, text.bytes(), changes);
  text.transform(changes);
}

class NormalFormNormalizer final : public Normalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form) : form_(form) {}
  void normalize(Text& text) const override { to_normal_form(form_, text); }
  bool keeps(std::string_view text) const override { return is_surely_normal(form_, text); }
  Reach reach() const override {
    return form_ == NormalForm::kNfd || form_ == NormalForm::kNfkd ? Reach::kCharacter
                                                                   : Reach::kNeighbours;
  }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void normalize(Text& text) const override { lowercase(text); }
  bool keeps(std::string_view text) const override {
    return is_ascii(text) &&
           std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  }
  Reach reach() const override { return Reach::kCharacter; }
  bool may_move_start() const override { return false; }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void normalize(Text& text) const override {
    const std::string& bytes = text.bytes();
    std::size_t begin = 0;
    std::size_t end = bytes.size();
    std::size_t skipped = 0;
    while (left_ && begin < end && is_space(utf8_point(&bytes[begin]))) {
      begin += utf8_size(bytes[begin]);
      ++skipped;
    }
    while (right_ && begin < end) {
      const char* last = utf8_previous(bytes.data() + end);
      if (!is_space(utf8_point(last))) break;
      end = static_cast<std::size_t>(last - bytes.data());
    }
    if (begin == 0 && end == bytes.size()) return;
    std::vector<Change>& changes = text.changes();
    for_each_point(std::string_view(bytes).substr(begin, end - begin), [&](char32_t point) {
      changes.push_back({point, 0});
    });
    text.transform(changes, skipped);
  }
  bool keeps(std::string_view text) const override {
    return text.empty() ||
           ((!left_ || !is_space(utf8_point(text.data()))) &&
            (!right_ || !is_space(utf8_point(utf8_previous(text.data() + text.size())))));
  }
  // On the right it touches only the end of the text.
  Reach reach() const override { return left_ ? Reach::kText : Reach::kNeighbours; }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  void normalize(Text& text) const override {
    const Unicode& properties = unicode();
    filter(
        text, [&](char32_t c) { return !properties.is(c, kIsAccent); },
        [](char32_t c) { return c; });
  }
  bool keeps(std::string_view text) const override { return is_ascii(text); }
  Reach reach() const override { return Reach::kCharacter; }
};

class Nmt final : public Normalizer {
 public:
  void normalize(Text& text) const override {
    filter(
        text, [](char32_t c) { return !is_removed(c); },
        [](char32_t c) { return is_blank(c) ? U' ' : c; });
  }
  bool keeps(std::string_view text) const override {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7F; });
  }
  Reach reach() const override { return Reach::kNeighbours; }

 private:
  static bool is_removed(char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
  }
  static bool is_blank(char32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void normalize(Text& text) const override {
    std::vector<Change>& changes = text.changes();
    const auto& points = byte_to_point();
    for (const char byte : text.bytes()) {
      changes.push_back({points[static_cast<unsigned char>(byte)], is_continuation(byte) ? 1 : 0});
    }
    text.transform(changes);
  }
  bool keeps(std::string_view text) const override {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
  }
  Reach reach() const override { return Reach::kText; }
  bool may_move_start() const override { return false; }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void normalize(Text& text) const override { text.prepend(prefix_); }
  bool keeps(std::string_view text) const override { return text.empty() || prefix_.empty(); }
  Reach reach() const override { return prefix_.empty() ? Reach::kCharacter : Reach::kText; }
  bool may_move_start() const override { return false; }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content, const ReplaceTraits& traits)
      : pattern_(std::move(pattern)), content_(std::move(content)), traits_(traits) {}

  void normalize(Text& text) const override {
    if (keeps(text.bytes())) return;
    std::vector<Match> matches;
    pattern_->find(text.bytes(), matches);
    Text result;
    result.clear(text.tracked());
    for (const Match& match : matches) {
      if (!match.is_match) {
        result.append(text, match.begin, match.end);
      } else {
        // What is put in belongs to the last character that it replaces.
        Span span;
        if (text.tracked()) {
          const std::uint32_t start = text.spans().front().begin;
          span = match.end > 0 ? text.spans()[match.end - 1] : Span{start, start};
        }
        result.append(content_, span);
      }
    }
    text = std::move(result);
  }
  bool keeps(std::string_view text) const override { return !pattern_->is_in(text); }
  Reach reach() const override { return traits_.reach; }
  bool keeps_spaces() const override { return traits_.keeps_spaces; }
  bool joins_spaces() const override { return traits_.joins_spaces; }
  bool may_move_start() const override { return traits_.reach != Reach::kCharacter; }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
  ReplaceTraits traits_;
};

// The peer looks whole graphemes up first, by their shortest mapped prefix, and drops the rest of
// such a grapheme.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap charsmap) : charsmap_(std::move(charsmap)) {
    for (int c = 0; c < 128; ++c) {
      const char byte = static_cast<char>(c);
      plain_[c] = c != '\r' && !charsmap_.shortest({&byte, 1}).has_value();
    }
  }

  void normalize(Text& text) const override {
    std::string_view rest = text.bytes();
    if (keeps(rest)) return;
    std::vector<Change>& changes = text.changes();
    bool modified = false;
    while (!rest.empty()) {
      if (is_plain(rest)) {
        changes.push_back({static_cast<unsigned char>(rest[0]), 0});
        rest.remove_prefix(1);
        continue;
      }
      const std::string_view cluster = rest.substr(0, grapheme_size(rest));
      rest.remove_prefix(cluster.size());
      if (cluster.size() < kShortGrapheme && put(cluster, changes)) {
        modified = true;
        continue;
      }
      for (std::size_t i = 0; i < cluster.size(); i += utf8_size(cluster[i])) {
        if (put(cluster.substr(i, utf8_size(cluster[i])), changes)) {
          modified = true;
        } else {
          changes.push_back({utf8_point(&cluster[i]), 0});
        }
      }
    }
    if (modified) text.transform(changes);
  }
  bool keeps(std::string_view text) const override {
    return std::all_of(text.begin(), text.end(), [this](char c) {
      return static_cast<unsigned char>(c) < 128 && plain_[static_cast<unsigned char>(c)];
    });
  }
  Reach reach() const override { return Reach::kNeighbours; }
  bool keeps_apart(char32_t point) const override {
    if (point < 128) return plain_[point];
    std::string character;
    append_utf8(character, point);
    return !charsmap_.shortest(character).has_value();
  }
  bool keeps_spaces() const override { return keeps_apart(U' '); }

 private:
  static constexpr std::size_t kShortGrapheme = 6;

  // An ASCII character without a mapping that no other one extends.
  bool is_plain(std::string_view text) const {
    const auto byte = static_cast<unsigned char>(text[0]);
    return byte < 128 && plain_[byte] &&
           (text.size() == 1 || static_cast<unsigned char>(text[1]) < 128);
  }

  bool put(std::string_view part, std::vector<Change>& changes) const {
    const auto found = charsmap_.shortest(part);
    if (!found) return false;
    const int old_count = static_cast<int>(count_points(part));
    int new_count = 0;
    for_each_point(found->replacement, [&](char32_t point) {
      changes.push_back({point, new_count < old_count ? 0 : 1});
      ++new_count;
    });
    if (new_count < old_count && !changes.empty()) changes.back().change += new_count - old_count;
    return true;
  }

  Charsmap charsmap_;
  bool plain_[128] = {};
};

class Bert final : public Normalizer {
 public:
  explicit Bert(const BertOptions& options) : options_(options) {}

  void normalize(Text& text) const override {
    const Unicode& properties = unicode();
    if (options_.clean_text) {
      filter(
          text, [&](char32_t c) { return !properties.is(c, kIsUnclean); },
          [&](char32_t c) { return properties.is(c, kIsSpace) ? U' ' : c; });
    }
    if (options_.handle_chinese_chars && !is_ascii(text.bytes())) {
      std::vector<Change>& changes = text.changes();
      for_each_point(text.bytes(), [&](char32_t c) {
        if (!is_chinese(c)) {
          changes.push_back({c, 0});
          return;
        }
        changes.push_back({U' ', 0});
        changes.push_back({c, 1});
        changes.push_back({U' ', 1});
      });
      text.transform(changes);
    }
    if (options_.strip_accents && !is_ascii(text.bytes())) {
      to_normal_form(NormalForm::kNfd, text);
      filter(
          text, [&](char32_t c) { return !properties.is(c, kIsNonspacing); },
          [](char32_t c) { return c; });
    }
    if (options_.lowercase) lowercase(text);
  }
  bool keeps(std::string_view text) const override {
    return std::all_of(text.begin(), text.end(), [this](char c) {
      return c >= ' ' && c < 0x7F && !(options_.lowercase && c >= 'A' && c <= 'Z');
    });
  }
  Reach reach() const override { return Reach::kCharacter; }
  bool keeps_apart(char32_t point) const override {
    return !options_.handle_chinese_chars || !is_chinese(point);
  }

 private:
  static bool is_chinese(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }

  BertOptions options_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}

  void normalize(Text& text) const override {
    for (const auto& part : parts_) part->normalize(text);
  }
  bool keeps(std::string_view text) const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [&](const auto& part) { return part->keeps(text); });
  }
  Reach reach() const override {
    Reach widest = Reach::kCharacter;
    for (const auto& part : parts_) widest = std::max(widest, part->reach());
    return widest;
  }
  bool keeps_apart(char32_t point) const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [point](const auto& part) { return part->keeps_apart(point); });
  }
  bool keeps_spaces() const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->keeps_spaces(); });
  }
  bool joins_spaces() const override {
    return !parts_.empty() && parts_.back()->joins_spaces() &&
           std::all_of(parts_.begin(), parts_.end() - 1,
                       [](const auto& part) { return part->keeps_spaces(); });
  }
  bool may_move_start() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->may_move_start(); });
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normal_form(NormalForm form) {
  return std::make_unique<NormalFormNormalizer>(form);
}
std::unique_ptr<Normalizer> make_lowercase() {
  return std::make_unique<Lowercase>();
}
std::unique_ptr<Normalizer> make_strip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
std::unique_ptr<Normalizer> make_strip_accents() {
  return std::make_unique<StripAccents>();
}
std::unique_ptr<Normalizer> make_nmt() {
  return std::make_unique<Nmt>();
}
std::unique_ptr<Normalizer> make_byte_level_normalizer() {
  return std::make_unique<ByteLevelNormalizer>();
}
std::unique_ptr<Normalizer> make_prepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
std::unique_ptr<Normalizer> make_replace(std::unique_ptr<Pattern> pattern, std::string content,
                                         const ReplaceTraits& traits) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content), traits);
}
std::unique_ptr<Normalizer> make_precompiled(Charsmap charsmap) {
  return std::make_unique<Precompiled>(std::move(charsmap));
}
std::unique_ptr<Normalizer> make_bert_normalizer(const BertOptions& options) {
  return std::make_unique<Bert>(options);
}
std::unique_ptr<Normalizer> make_normalizer_sequence(
    std::vector<std::unique_ptr<Normalizer>> normalizers) {
  return std::make_unique<Sequence>(std::move(normalizers));
}

}  // namespace haul::tokenizers
