// The normalizer, pre-tokenizer and decoder objects of tokenizer.json.

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/tokenizer_json.h"

namespace haul::tokenizers {
namespace {

[[noreturn]] void refuse_type(const JsonValue& value, std::string_view what,
                              std::string_view type) {
  throw Error(ErrorKind::kUnsupported,
              fmt::format("{}: unknown kind of {} '{}'", value.place(), what, type));
}

// {"String": s} or {"Regex": s}.
struct PatternText {
  bool is_regex = false;
  std::string text;
};

PatternText read_pattern_text(const JsonValue& value) {
  if (const auto text = value.find("String")) return {false, std::string(text->string())};
  if (const auto text = value.find("Regex")) return {true, std::string(text->string())};
  value.refuse("a \"String\" or a \"Regex\"");
}

constexpr std::string_view kSpaceRuns = " {2,}";

std::unique_ptr<Pattern> make_pattern(const PatternText& pattern, const JsonValue& value) {
  try {
    if (pattern.is_regex && pattern.text == kSpaceRuns) return make_space_runs();
    return pattern.is_regex ? make_regex(pattern.text) : make_literal(pattern.text);
  } catch (Error& error) {
    error.add_context(value.place());
    throw;
  }
}

// What a replacement does to spaces, for the fast route.
ReplaceTraits replacement_traits(const PatternText& pattern, std::string_view content) {
  if (pattern.is_regex) {
    if (pattern.text != kSpaceRuns) return {};
    const bool keeps = !content.empty() && content.find_first_not_of(' ') == std::string_view::npos;
    return {Reach::kNeighbours, keeps, true};
  }
  if (pattern.text == " ") return {Reach::kCharacter, content == " ", false};
  constexpr std::string_view kBlanks = " \t\n";
  const bool has_blank = pattern.text.find_first_of(kBlanks) != std::string::npos ||
                         content.find_first_of(kBlanks) != std::string_view::npos ||
                         content.empty();
  if (pattern.text.empty() || has_blank) return {};
  return {Reach::kNeighbours, true, false};
}

std::string decode_base64(std::string_view text, const JsonValue& value) {
  const auto digit = [](char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  unsigned held = 0;
  int bits = 0;
  for (const char c : text) {
    if (digit(c) < 0) value.refuse("base64");
    held = held << 6 | static_cast<unsigned>(digit(c));
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(held >> bits & 255));
  }
  return bytes;
}

SplitBehavior read_behavior(const JsonValue& value) {
  const std::string_view name = value.string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  value.refuse("a way to split");
}

PrependScheme read_scheme(const JsonValue& value) {
  PrependScheme scheme = PrependScheme::kAlways;
  if (const auto name = value.find("prepend_scheme")) {
    if (name->string() == "first") {
      scheme = PrependScheme::kFirst;
    } else if (name->string() == "never") {
      scheme = PrependScheme::kNever;
    } else if (name->string() != "always") {
      name->refuse("first, never or always");
    }
  }
  if (!value.boolean_or("add_prefix_space", true) && scheme != PrependScheme::kNever) {
    value.refuse("a prepend_scheme that matches add_prefix_space");
  }
  return scheme;
}

Charsmap read_charsmap(const JsonValue& value) {
  try {
    return Charsmap(decode_base64(value.string(), value));
  } catch (Error& error) {
    error.add_context(value.place());
    throw;
  }
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonValue& value, bool later) {
  const std::string_view type = value.at("type").string();
  if (type == "NFC") return make_normal_form(NormalForm::kNfc);
  if (type == "NFD") return make_normal_form(NormalForm::kNfd);
  if (type == "NFKC") return make_normal_form(NormalForm::kNfkc);
  if (type == "NFKD") return make_normal_form(NormalForm::kNfkd);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Nmt") return make_nmt();
  if (type == "ByteLevel") return make_byte_level_normalizer();
  if (type == "Strip") {
    return make_strip(value.at("strip_left").boolean(), value.at("strip_right").boolean());
  }
  if (type == "Prepend") {
    return make_prepend(later ? "" : std::string(value.at("prepend").string()));
  }
  if (type == "Precompiled") {
    return make_precompiled(read_charsmap(value.at("precompiled_charsmap")));
  }
  if (type == "Replace") {
    const PatternText pattern = read_pattern_text(value.at("pattern"));
    std::string content(value.at("content").string());
    const ReplaceTraits traits = replacement_traits(pattern, content);
    return make_replace(make_pattern(pattern, value), std::move(content), traits);
  }
  if (type == "BertNormalizer") {
    BertOptions options;
    options.clean_text = value.at("clean_text").boolean();
    options.handle_chinese_chars = value.at("handle_chinese_chars").boolean();
    options.lowercase = value.at("lowercase").boolean();
    options.strip_accents = value.boolean_or("strip_accents", options.lowercase);
    return make_bert_normalizer(options);
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const JsonValue& part : value.at("normalizers").items()) {
      parts.push_back(read_normalizer(part, later));
    }
    return make_normalizer_sequence(std::move(parts));
  }
  refuse_type(value, "normalizer", type);
}

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonValue& value) {
  const std::string_view type = value.at("type").string();
  if (type == "BertPreTokenizer") return make_bert_pre_tokenizer();
  if (type == "Whitespace") return make_whitespace();
  if (type == "WhitespaceSplit") return make_whitespace_split();
  if (type == "UnicodeScripts") return make_unicode_scripts();
  if (type == "Digits") return make_digits(value.at("individual_digits").boolean());
  if (type == "CharDelimiterSplit") return make_delimiter(value.at("delimiter").character());
  if (type == "ByteLevel") {
    return make_byte_level(value.at("add_prefix_space").boolean(),
                           value.boolean_or("use_regex", true));
  }
  if (type == "Metaspace") {
    return make_metaspace(value.at("replacement").character(), read_scheme(value),
                          value.boolean_or("split", true));
  }
  if (type == "Punctuation") {
    const auto behavior = value.find("behavior");
    return make_punctuation(behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated);
  }
  if (type == "FixedLength") {
    const auto length = value.find("length");
    const std::uint64_t count = length ? length->unsigned_integer() : 5;
    if (count == 0) length->refuse("a length of at least 1");
    return make_fixed_length(count);
  }
  if (type == "Split") {
    const PatternText pattern = read_pattern_text(value.at("pattern"));
    return make_split(make_pattern(pattern, value), read_behavior(value.at("behavior")),
                      value.at("invert").boolean(), pattern.is_regex ? pattern.text : "");
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    for (const JsonValue& part : value.at("pretokenizers").items()) {
      parts.push_back(read_pre_tokenizer(part));
    }
    return make_pre_tokenizer_sequence(std::move(parts));
  }
  refuse_type(value, "pre-tokenizer", type);
}

std::unique_ptr<Decoder> read_decoder(const JsonValue& value) {
  const std::string_view type = value.at("type").string();
  if (type == "ByteLevel") return make_byte_level_decoder();
  if (type == "ByteFallback") return make_byte_fallback_decoder();
  if (type == "Fuse") return make_fuse_decoder();
  if (type == "BPEDecoder") return make_bpe_decoder(std::string(value.at("suffix").string()));
  if (type == "Metaspace") {
    return make_metaspace_decoder(value.at("replacement").character(), read_scheme(value));
  }
  if (type == "WordPiece") {
    return make_word_piece_decoder(std::string(value.at("prefix").string()),
                                   value.at("cleanup").boolean());
  }
  if (type == "CTC") {
    return make_ctc_decoder(std::string(value.at("pad_token").string()),
                            std::string(value.at("word_delimiter_token").string()),
                            value.at("cleanup").boolean());
  }
  if (type == "Strip") {
    return make_strip_decoder(value.at("content").character(), value.at("start").unsigned_integer(),
                              value.at("stop").unsigned_integer());
  }
  if (type == "Replace") {
    return make_replace_decoder(make_pattern(read_pattern_text(value.at("pattern")), value),
                                std::string(value.at("content").string()));
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Decoder>> parts;
    for (const JsonValue& part : value.at("decoders").items()) parts.push_back(read_decoder(part));
    return make_decoder_sequence(std::move(parts));
  }
  refuse_type(value, "decoder", type);
}

}  // namespace haul::tokenizers
