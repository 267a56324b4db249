#include "tokenizers/gguf_metadata.h"

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {

const core::GgufValue* GgufMetadata::find(std::string_view key) const {
  return header_.find(fmt::format("tokenizer.{}", key));
}

bool GgufMetadata::boolean(std::string_view key, bool otherwise) const {
  return integer(key).value_or(otherwise) != 0;
}

std::optional<std::int64_t> GgufMetadata::integer(std::string_view key) const {
  const core::GgufValue* value = find(key);
  return value == nullptr ? std::nullopt : value->integer();
}

std::string_view GgufMetadata::text(std::string_view key) const {
  const core::GgufValue* value = find(key);
  const auto text = value == nullptr ? std::nullopt : value->text();
  if (text && !is_utf8(*text)) refuse(fmt::format("tokenizer.{} is not UTF-8", key));
  return text.value_or(std::string_view{});
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
  const core::GgufValue* value = find(key);
  if (value == nullptr) refuse(fmt::format("tokenizer.{} is missing", key));
  std::vector<std::string_view> list = value->texts();
  for (const std::string_view text : list) {
    if (!is_utf8(text)) refuse(fmt::format("tokenizer.{} has an entry that is not UTF-8", key));
  }
  return list;
}

GgufTokens GgufMetadata::tokens() const {
  GgufTokens tokens;
  tokens.texts = texts("ggml.tokens");
  tokens.types.assign(tokens.texts.size(), PieceType::kNormal);
  const core::GgufValue* value = find("ggml.token_type");
  if (value == nullptr) return tokens;
  const std::vector<std::int64_t> numbers = value->integers();
  if (numbers.size() != tokens.texts.size()) {
    refuse(fmt::format("{} tokens and {} token types", tokens.texts.size(), numbers.size()));
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 1 || numbers[i] > 6) refuse("an unknown type of token");
    tokens.types[i] = static_cast<PieceType>(numbers[i]);
  }
  return tokens;
}

void GgufMetadata::refuse(std::string_view what) const {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", source_, what));
}

}  // namespace haul::tokenizers
