// tokenizer_config.json, special_tokens_map.json and chat_template.jinja.

#include <algorithm>

#include "core/base/file.h"
#include "haul/bytes.h"
#include "tokenizers/sources.h"
#include "tokenizers/tokenizer_json.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestConfig = 64 * kMiB;

// A document and the text it came from; nothing when the file is not there.
struct Document {
  std::string source;
  core::BigJson json;
  JsonValue root() const { return JsonValue(json.root(), source); }
};

// The text with an exponent after integers that no 64 bits hold: a model without a limit says so by
// a model_max_length of 10^30.
std::string with_large_integers_as_reals(std::string_view text) {
  constexpr std::size_t kSafeDigits = 18;
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out += text[++i];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] >= '0' && text[i] <= '9') {
      const std::size_t end = std::min(text.find_first_not_of("0123456789", i), text.size());
      out += text.substr(i + 1, end - i - 1);
      const bool whole = end == text.size() || std::string_view(".eE").find(text[end]) == text.npos;
      const bool begins = i == 0 || std::string_view(".eE+").find(text[i - 1]) == text.npos;
      if (whole && begins && end - i > kSafeDigits) out += "e0";
      i = end - 1;
    }
  }
  return out;
}

std::optional<Document> read_document(const fs::path& path) {
  if (!fs::is_regular_file(path)) return std::nullopt;
  const std::string text = with_large_integers_as_reals(core::read_file(path, kLargestConfig));
  return Document{path.string(), core::BigJson(text, path.string())};
}

// A token as its text or as an object with flags.
std::string token_text(const JsonValue& value) {
  return std::string(value.is_object() ? value.at("content").string() : value.string());
}

void read_special(const JsonValue& root, SpecialTokens& special) {
  const auto read = [&](std::string_view key, std::optional<std::string>& token) {
    if (const auto value = root.find(key)) token = token_text(*value);
  };
  read("bos_token", special.bos);
  read("eos_token", special.eos);
  read("unk_token", special.unk);
  read("sep_token", special.sep);
  read("pad_token", special.pad);
  read("cls_token", special.cls);
  read("mask_token", special.mask);
}

// The default template of a list of named ones, or the only one.
std::optional<std::string> read_template(const JsonValue& value) {
  if (value.is_string()) return std::string(value.string());
  std::optional<std::string> found;
  for (const JsonValue& item : value.items()) {
    if (!found || item.at("name").string() == "default") {
      found = std::string(item.at("template").string());
    }
  }
  return found;
}

std::map<std::string, std::string> read_named_templates(const JsonValue& value) {
  std::map<std::string, std::string> named;
  if (value.is_string()) return named;
  for (const JsonValue& item : value.items()) {
    named[std::string(item.at("name").string())] = item.at("template").string();
  }
  return named;
}

// chat_template.jinja, and the templates for other purposes beside it.
void read_template_files(const fs::path& folder, Pipeline& pipeline) {
  const fs::path jinja = folder / "chat_template.jinja";
  if (!fs::is_regular_file(jinja)) return;
  pipeline.chat_template = to_utf8(core::read_file(jinja, kLargestConfig));
  pipeline.named_templates.clear();
  const fs::path others = folder / "additional_chat_templates";
  if (!fs::is_directory(others)) return;
  for (const auto& entry : fs::directory_iterator(others)) {
    if (entry.path().extension() != ".jinja") continue;
    pipeline.named_templates[entry.path().stem().string()] =
        to_utf8(core::read_file(entry.path(), kLargestConfig));
  }
  if (!pipeline.named_templates.empty())
    pipeline.named_templates["default"] = *pipeline.chat_template;
}

// The tokens of "added_tokens_decoder", in order of their ids.
std::vector<AddedToken> read_added(const JsonValue& value) {
  std::vector<std::pair<std::uint64_t, AddedToken>> tokens;
  for (const auto& [key, token] : value.members()) {
    std::uint64_t id = 0;
    for (const char digit : key) {
      if (digit < '0' || digit > '9' || key.size() > 10) token.refuse("an id as its key");
      id = id * 10 + static_cast<std::uint64_t>(digit - '0');
    }
    tokens.emplace_back(id, read_added_token(token));
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<AddedToken> result;
  result.reserve(tokens.size());
  for (auto& [id, token] : tokens) result.push_back(std::move(token));
  return result;
}

}  // namespace

ConfiguredClass read_configured_class(const fs::path& folder) {
  ConfiguredClass result;
  if (const auto config = read_document(folder / "tokenizer_config.json")) {
    result.name = config->root().string_or("tokenizer_class", "");
    result.lowercase = config->root().boolean_or("do_lower_case", true);
  }
  return result;
}

void apply_tokenizer_config(const JsonValue& config, bool has_tokenizer_json, Pipeline& pipeline) {
  read_special(config, pipeline.special);
  // Transformers passes over the clean-up where it would take spaces of the text itself.
  pipeline.clean_up_spaces =
      config.boolean_or("clean_up_tokenization_spaces", false) && !pipeline.model->keeps_spaces();
  if (const auto value = config.find("chat_template")) {
    pipeline.chat_template = read_template(*value);
    pipeline.named_templates = read_named_templates(*value);
  }
  if (const auto value = config.find("added_tokens_decoder")) {
    pipeline.added.add(read_added(*value), pipeline.model->vocabulary(), pipeline.normalizer.get());
  }
  const bool adds_bos = config.boolean_or("add_bos_token", false);
  const bool adds_eos = config.boolean_or("add_eos_token", false);
  if (!has_tokenizer_json && (adds_bos || adds_eos)) {
    set_ends(pipeline, adds_bos ? pipeline.special.bos : std::nullopt,
             adds_eos ? pipeline.special.eos : std::nullopt);
  }
}

void apply_tokenizer_config(const fs::path& folder, bool has_tokenizer_json, Pipeline& pipeline) {
  if (const auto map = read_document(folder / "special_tokens_map.json")) {
    read_special(map->root(), pipeline.special);
  }
  if (const auto config = read_document(folder / "tokenizer_config.json")) {
    apply_tokenizer_config(config->root(), has_tokenizer_json, pipeline);
  }
  read_template_files(folder, pipeline);
}

}  // namespace haul::tokenizers
