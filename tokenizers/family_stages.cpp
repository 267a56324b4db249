#include "tokenizers/family_stages.h"

#include <string>
#include <string_view>

#include "tokenizers/scanners.h"

namespace haul::tokenizers {
namespace {

using core::Json;

constexpr const char* kMark = "\xE2\x96\x81";

Json literal(std::string_view text) {
  return {{"String", text}};
}

Json regex(std::string_view text) {
  return {{"Regex", text}};
}

Json replace(const Json& pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json split_then_bytes(Scanner scanner, std::string_view behavior, bool invert) {
  const Json split{{"type", "Split"},
                   {"pattern", regex(pattern_of(scanner))},
                   {"behavior", behavior},
                   {"invert", invert}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false)})}};
}

Json digits_then_bytes() {
  const Json digits{{"type", "Digits"}, {"individual_digits", true}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({digits, byte_level(true)})}};
}

Json clip_normalizer() {
  return {
      {"type", "Sequence"},
      {"normalizers",
       Json::array({{{"type", "NFC"}}, replace(regex(R"(\s+)"), " "), {{"type", "Lowercase"}}})}};
}

Json named(const NamedId& token) {
  return Json::array({token.token, token.id});
}

std::string encode_base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned held = 0;
    for (std::size_t k = i; k < i + 3; ++k) {
      held = held << 8 | (k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      const bool is_padding = i + k > bytes.size();
      text.push_back(is_padding ? '=' : kDigits[held >> (18 - 6 * k) & 63]);
    }
  }
  return text;
}

}  // namespace

Json byte_level_stages(BpeFamily family) {
  Json normalizer;
  Json pre_tokenizer = byte_level(true);
  switch (family) {
    case BpeFamily::kGpt2:
    case BpeFamily::kRoberta:
      break;
    case BpeFamily::kSmolLm:
      pre_tokenizer = digits_then_bytes();
      break;
    case BpeFamily::kQwen2:
      normalizer = {{"type", "NFC"}};
      pre_tokenizer = split_then_bytes(Scanner::kQwen2, "Isolated", false);
      break;
    case BpeFamily::kLlama3:
      pre_tokenizer = split_then_bytes(Scanner::kCl100k, "Isolated", false);
      break;
    case BpeFamily::kGpt4o:
      pre_tokenizer = split_then_bytes(Scanner::kO200k, "Isolated", false);
      break;
    case BpeFamily::kClip:
      normalizer = clip_normalizer();
      pre_tokenizer = split_then_bytes(Scanner::kClip, "Removed", true);
      break;
  }
  Json post_processor = byte_level(true);
  post_processor["trim_offsets"] = false;
  return {{"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", post_processor},
          {"decoder", byte_level(true)}};
}

Json bert_stages(bool lowercase, const std::optional<NamedId>& cls,
                 const std::optional<NamedId>& sep) {
  Json post_processor;
  if (cls && sep) {
    post_processor = {{"type", "BertProcessing"}, {"sep", named(*sep)}, {"cls", named(*cls)}};
  }
  return {{"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", lowercase}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", post_processor},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}}};
}

Json sentencepiece_stages(const SpaceRules& rules) {
  Json normalizers = Json::array();
  if (!rules.charsmap.empty()) {
    normalizers.push_back(
        {{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(rules.charsmap)}});
  }
  if (rules.remove_extra) {
    // Marks at the end go with the spaces. Looking back keeps long runs inside a text linear.
    normalizers.push_back(replace(regex("\\A +|(?<![ \xE2\x96\x81])[ \xE2\x96\x81]+\\z"), ""));
    normalizers.push_back(replace(regex(" {2,}"), " "));
  }
  if (rules.add_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kMark}});
  normalizers.push_back(replace(literal(" "), kMark));

  Json pre_tokenizer;
  if (rules.split_words) {
    pre_tokenizer = {{"type", "Metaspace"},
                     {"replacement", kMark},
                     {"prepend_scheme", "never"},
                     {"split", true}};
  }
  Json decoders =
      Json::array({replace(literal(kMark), " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (rules.add_prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}}};
}

Json surround(const std::optional<NamedId>& before, const std::optional<NamedId>& after) {
  Json specials = Json::object();
  for (const auto& token : {before, after}) {
    if (!token) continue;
    specials[token->token] = {{"id", token->token},
                              {"ids", Json::array({token->id})},
                              {"tokens", Json::array({token->token})}};
  }
  const auto pieces = [&](std::string_view sequence, int type_id) {
    Json list = Json::array();
    const auto put = [&](std::string_view kind, std::string_view id) {
      list.push_back({{kind, {{"id", id}, {"type_id", type_id}}}});
    };
    if (before) put("SpecialToken", before->token);
    put("Sequence", sequence);
    if (after) put("SpecialToken", after->token);
    return list;
  };
  const Json single = pieces("A", 0);
  Json pair = single;
  for (const Json& piece : pieces("B", 1)) pair.push_back(piece);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", specials}};
}

}  // namespace haul::tokenizers
