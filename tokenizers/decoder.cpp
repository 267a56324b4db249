#include "tokenizers/decoder.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tokenizers/byte_level.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  if (from.empty()) {
    // Between all characters, as the peer's library replaces nothing by something.
    std::string result(to);
    for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
      result.append(text, i, utf8_size(text[i])).append(to);
    }
    return result;
  }
  std::size_t at = text.find(from);
  if (at == std::string::npos) return text;
  std::string result;
  std::size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    result.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  return result.append(text, done);
}

class ByteLevel final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string bytes;
    std::string decoded;
    for (const std::string& token : tokens) {
      decoded.clear();
      bool all = true;
      for_each_point(token, [&](char32_t point) {
        const auto byte = point_to_byte(point);
        all = all && byte.has_value();
        if (byte) decoded.push_back(static_cast<char>(*byte));
      });
      bytes += all ? decoded : token;
    }
    tokens.assign(1, is_utf8(bytes) ? std::move(bytes) : to_utf8(bytes));
  }
  bool is_local() const override { return true; }
};

class WordPiece final : public Decoder {
 public:
  WordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) {
        if (token.starts_with(prefix_)) {
          token.erase(0, prefix_.size());
        } else {
          token.insert(token.begin(), ' ');
        }
      }
      if (cleanup_) token = clean_up_spaces(std::move(token), true);
    }
  }
  bool is_local() const override { return true; }

 private:
  std::string prefix_;
  bool cleanup_;
};

class Metaspace final : public Decoder {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme)
      : drops_first_(scheme != PrependScheme::kNever) {
    append_utf8(mark_, replacement);
  }

  void decode(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(std::move(tokens[i]), mark_, i == 0 && drops_first_ ? "" : " ");
    }
  }
  bool is_local() const override { return true; }

 private:
  std::string mark_;
  bool drops_first_;
};

class Bpe final : public Decoder {
 public:
  explicit Bpe(std::string suffix) : suffix_(std::move(suffix)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(std::move(tokens[i]), suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }
  bool is_local() const override { return false; }

 private:
  std::string suffix_;
};

class ByteFallback final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_utf8(bytes)) {
        result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = parse(token)) {
        bytes.push_back(static_cast<char>(*byte));
      } else {
        flush();
        result.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(result);
  }
  bool is_local() const override { return true; }

 private:
  // "<0x41>", and as the peer reads numbers also "<0x+4>".
  static std::optional<unsigned char> parse(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
    std::string_view digits = token.substr(3, 2);
    if (digits[0] == '+') digits.remove_prefix(1);
    unsigned value = 0;
    const auto [end, code] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (code != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return static_cast<unsigned char>(value);
  }
};

class Fuse final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens.assign(1, std::move(text));
  }
  bool is_local() const override { return true; }
};

class Strip final : public Decoder {
 public:
  Strip(char32_t content, std::size_t start, std::size_t stop) : start_(start), stop_(stop) {
    append_utf8(content_, content);
  }

  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view text = token;
      for (std::size_t i = 0; i < start_ && text.starts_with(content_); ++i) {
        text.remove_prefix(content_.size());
      }
      for (std::size_t i = 0; i < stop_ && text.ends_with(content_); ++i) {
        text.remove_suffix(content_.size());
      }
      token = std::string(text);
    }
  }
  bool is_local() const override { return stop_ == 0; }

 private:
  std::string content_;
  std::size_t start_, stop_;
};

class Replace final : public Decoder {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void decode(std::vector<std::string>& tokens) const override {
    std::vector<Match> matches;
    for (std::string& token : tokens) {
      matches.clear();
      pattern_->find(token, matches);
      std::string result;
      for (const Match& match : matches) {
        result += match.is_match ? content_ : token.substr(match.begin, match.end - match.begin);
      }
      token = std::move(result);
    }
  }
  bool is_local() const override { return true; }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class Ctc final : public Decoder {
 public:
  Ctc(std::string pad_token, std::string word_delimiter_token, bool cleanup)
      : pad_token_(std::move(pad_token)),
        word_delimiter_token_(std::move(word_delimiter_token)),
        cleanup_(cleanup) {}

  void decode(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    std::vector<std::string> result;
    for (std::string& token : tokens) {
      token = replace_all(std::move(token), pad_token_, "");
      if (cleanup_) {
        token = replace_all(clean_up_spaces(std::move(token), true), word_delimiter_token_, " ");
      }
      if (!token.empty()) result.push_back(std::move(token));
    }
    tokens = std::move(result);
  }
  bool is_local() const override { return false; }

 private:
  std::string pad_token_, word_delimiter_token_;
  bool cleanup_;
};

class Sequence final : public Decoder {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Decoder>> parts) : parts_(std::move(parts)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (const auto& part : parts_) part->decode(tokens);
  }
  bool is_local() const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->is_local(); });
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

}  // namespace

std::unique_ptr<Decoder> make_byte_level_decoder() {
  return std::make_unique<ByteLevel>();
}
std::unique_ptr<Decoder> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPiece>(std::move(prefix), cleanup);
}
std::unique_ptr<Decoder> make_metaspace_decoder(char32_t replacement, PrependScheme scheme) {
  return std::make_unique<Metaspace>(replacement, scheme);
}
std::unique_ptr<Decoder> make_bpe_decoder(std::string suffix) {
  return std::make_unique<Bpe>(std::move(suffix));
}
std::unique_ptr<Decoder> make_byte_fallback_decoder() {
  return std::make_unique<ByteFallback>();
}
std::unique_ptr<Decoder> make_fuse_decoder() {
  return std::make_unique<Fuse>();
}
std::unique_ptr<Decoder> make_strip_decoder(char32_t content, std::size_t start, std::size_t stop) {
  return std::make_unique<Strip>(content, start, stop);
}
std::unique_ptr<Decoder> make_replace_decoder(std::unique_ptr<Pattern> pattern,
                                              std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
std::unique_ptr<Decoder> make_ctc_decoder(std::string pad_token, std::string word_delimiter_token,
                                          bool cleanup) {
  return std::make_unique<Ctc>(std::move(pad_token), std::move(word_delimiter_token), cleanup);
}
std::unique_ptr<Decoder> make_decoder_sequence(std::vector<std::unique_ptr<Decoder>> parts) {
  return std::make_unique<Sequence>(std::move(parts));
}

std::string clean_up_spaces(std::string text, bool negation) {
  if (text.find(' ') == std::string::npos) return text;
  for (const char* mark : {".", "?", "!", ","}) {
    text = replace_all(std::move(text), std::string(" ") + mark, mark);
  }
  text = replace_all(std::move(text), " ' ", "'");
  for (const char* ending : {"n't", "'m"}) {
    text = replace_all(std::move(text), std::string(" ") + ending, ending);
  }
  if (negation) text = replace_all(std::move(text), " do not", " don't");
  for (const char* ending : {"'s", "'ve", "'re"}) {
    text = replace_all(std::move(text), std::string(" ") + ending, ending);
  }
  return text;
}

}  // namespace haul::tokenizers
