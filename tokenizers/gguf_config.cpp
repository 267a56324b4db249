#include "tokenizers/gguf_config.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "tokenizers/family_stages.h"

namespace haul::tokenizers {
namespace {

using core::Json;
using Names = std::map<std::string, NamedId, std::less<>>;  // by key of tokenizer_config.json

// The id under a key of the metadata; nothing where there is none.
std::optional<TokenId> find_id(const GgufMetadata& metadata, std::string_view key,
                               std::size_t tokens) {
  const auto id = metadata.integer(key);
  if (!id) return std::nullopt;
  if (*id < 0 || static_cast<std::uint64_t>(*id) >= tokens) {
    metadata.refuse(fmt::format("tokenizer.{} is {}, and there are {} tokens", key, *id, tokens));
  }
  return static_cast<TokenId>(*id);
}

Names find_names(const GgufMetadata& metadata, const GgufTokens& tokens, bool is_word_piece,
                 const Vocabulary& vocabulary) {
  struct Special {
    const char* name;
    const char* key;
    const char* word_piece;  // what BERT calls it
  };
  constexpr std::array kSpecials{Special{"bos_token", "ggml.bos_token_id", nullptr},
                                 Special{"eos_token", "ggml.eos_token_id", nullptr},
                                 Special{"unk_token", "ggml.unknown_token_id", "[UNK]"},
                                 Special{"sep_token", "ggml.seperator_token_id", "[SEP]"},
                                 Special{"pad_token", "ggml.padding_token_id", "[PAD]"},
                                 Special{"cls_token", "ggml.cls_token_id", "[CLS]"},
                                 Special{"mask_token", "ggml.mask_token_id", "[MASK]"}};
  Names names;
  const auto put = [&](const char* name, TokenId id) {
    if (const auto token = vocabulary.token(id)) names[name] = {std::string(*token), id};
  };
  for (const Special& special : kSpecials) {
    if (const auto id = find_id(metadata, special.key, tokens.texts.size())) put(special.name, *id);
    if (!is_word_piece || special.word_piece == nullptr) continue;
    if (const auto id = vocabulary.find(special.word_piece)) put(special.name, *id);
  }
  // BERT's texts begin and end with cls and sep, under whichever key they stand.
  for (const auto& [other, own] :
       {std::pair{"bos_token", "cls_token"}, std::pair{"eos_token", "sep_token"}}) {
    if (is_word_piece && names.contains(other)) {
      names.emplace(own, names.at(other));
      names.erase(other);
    }
  }
  return names;
}

void add_tokens(const GgufTokens& tokens, std::string_view kind, const Names& names,
                GgufTokenizer& tokenizer) {
  std::vector<TokenId> special;
  for (const auto& [name, token] : names) special.push_back(token.id);
  if (kind == "gpt2") {
    for (const char* known : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
      if (const auto id = tokenizer.vocabulary.find(known)) special.push_back(*id);
    }
  }
  std::sort(special.begin(), special.end());
  const bool joins_spaces = kind == "llama" || kind == "t5";
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    const bool is_special =
        tokens.types[i] == PieceType::kControl ||
        std::binary_search(special.begin(), special.end(), static_cast<TokenId>(i));
    const bool is_user_defined = tokens.types[i] == PieceType::kUserDefined &&
                                 !(joins_spaces && count_spaces(tokens.texts[i]) > 0);
    const auto text = tokenizer.vocabulary.token(static_cast<TokenId>(i));
    if (!text || !(is_special || is_user_defined)) continue;
    tokenizer.added.push_back(
        {.content = std::string(*text), .normalized = false, .special = is_special});
  }
}

// One template as its text, several as a list with names.
Json chat_template(const GgufMetadata& metadata) {
  std::map<std::string_view, std::string_view> named;
  if (metadata.find("chat_templates") != nullptr) {
    for (const std::string_view name : metadata.texts("chat_templates")) {
      named[name] = metadata.text(fmt::format("chat_template.{}", name));
    }
  }
  const std::string_view only = metadata.text("chat_template");
  if (named.empty()) return only.empty() ? Json() : Json(only);
  if (!only.empty()) named["default"] = only;
  Json list = Json::array();
  for (const auto& [name, text] : named) list.push_back({{"name", name}, {"template", text}});
  return list;
}

std::optional<std::int64_t> context_length(const GgufMetadata& metadata) {
  const core::GgufValue* name = metadata.header().find("general.architecture");
  const auto architecture = name == nullptr ? std::nullopt : name->text();
  if (!architecture) return std::nullopt;
  const core::GgufValue* length =
      metadata.header().find(fmt::format("{}.context_length", *architecture));
  return length == nullptr ? std::nullopt : length->integer();
}

Json generation_config(const GgufMetadata& metadata, std::size_t tokens) {
  Json config = Json::object();
  const auto eos = find_id(metadata, "ggml.eos_token_id", tokens);
  const auto eot = find_id(metadata, "ggml.eot_token_id", tokens);
  if (const auto bos = find_id(metadata, "ggml.bos_token_id", tokens))
    config["bos_token_id"] = *bos;
  // A turn may end otherwise than a text.
  if (eos && eot && *eos != *eot) {
    config["eos_token_id"] = Json::array({*eos, *eot});
  } else if (eos) {
    config["eos_token_id"] = *eos;
  }
  if (const auto pad = find_id(metadata, "ggml.padding_token_id", tokens)) {
    config["pad_token_id"] = *pad;
  }
  return config;
}

// Llama 3's own tokenizer begins a text with a token even where its file says nothing of it.
bool begins_texts(std::string_view kind, std::string_view pre) {
  return kind == "llama" ||
         (kind == "gpt2" && (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3"));
}

}  // namespace

void add_configuration(const GgufMetadata& metadata, const GgufTokens& tokens,
                       std::string_view kind, GgufTokenizer& tokenizer) {
  const bool is_word_piece = kind == "bert";
  const Names names = find_names(metadata, tokens, is_word_piece, tokenizer.vocabulary);
  const auto find = [&](std::string_view name) -> std::optional<NamedId> {
    const auto found = names.find(name);
    return found == names.end() ? std::nullopt : std::optional(found->second);
  };
  add_tokens(tokens, kind, names, tokenizer);

  // TokenizersBackend's older name, which every version knows: it takes tokenizer.json as it is.
  Json& config = tokenizer.config;
  config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [name, token] : names) config[name] = token.token;
  if (is_word_piece) {
    const auto cls = find("cls_token");
    const auto sep = find("sep_token");
    const auto lowercase = tokenizer.stages["normalizer"]["lowercase"].get<bool>();
    tokenizer.stages.update(bert_stages(lowercase, cls, sep));
    config["model_input_names"] = {"input_ids", "token_type_ids", "attention_mask"};
  } else {
    const bool adds_bos =
        metadata.boolean("ggml.add_bos_token", begins_texts(kind, metadata.text("ggml.pre"))) &&
        find("bos_token");
    const bool adds_eos = metadata.boolean("ggml.add_eos_token", kind == "t5") && find("eos_token");
    config["add_bos_token"] = adds_bos;
    config["add_eos_token"] = adds_eos;
    if (adds_bos || adds_eos) {
      tokenizer.stages["post_processor"] = surround(adds_bos ? find("bos_token") : std::nullopt,
                                                    adds_eos ? find("eos_token") : std::nullopt);
    }
    config["model_input_names"] = {"input_ids", "attention_mask"};
    tokenizer.generation = generation_config(metadata, tokens.texts.size());
  }
  if (const auto length = context_length(metadata); length && *length > 0) {
    config["model_max_length"] = *length;
  }
  config["clean_up_tokenization_spaces"] = false;
  if (Json source = chat_template(metadata); !source.is_null()) {
    config["chat_template"] = std::move(source);
  }
}

}  // namespace haul::tokenizers
