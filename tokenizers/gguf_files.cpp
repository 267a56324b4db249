#include "tokenizers/gguf_files.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "tokenizers/gguf_tokenizer.h"

namespace haul::tokenizers {
namespace {

using core::Json;

std::string json_text(std::string_view text) {
  return Json(text).dump();
}

// Writes `item(i)` for each i, one a line, with commas between them.
template <class Item>
void put_lines(std::size_t count, const Item& item, std::string& out) {
  for (std::size_t i = 0; i < count; ++i) {
    out += i == 0 ? "\n" : ",\n";
    out += item(i);
  }
  out += '\n';
}

std::string added_token(const AddedToken& token, TokenId id) {
  return Json{{"id", id},
              {"content", token.content},
              {"single_word", token.single_word},
              {"lstrip", token.lstrip},
              {"rstrip", token.rstrip},
              {"normalized", token.normalized},
              {"special", token.special}}
      .dump();
}

// The lowest score of a piece sets the price of an unknown character, so pieces that are never
// chosen must not be cheaper.
std::vector<float> written_scores(const SentencePieceModel& model) {
  float lowest = std::numeric_limits<float>::max();
  for (const auto& entry : model.entries) {
    if (entry.type == PieceType::kNormal) lowest = std::min(lowest, entry.score);
  }
  if (lowest == std::numeric_limits<float>::max()) lowest = 0;
  std::vector<float> scores;
  for (const auto& entry : model.entries) {
    scores.push_back(entry.type == PieceType::kNormal ? entry.score : lowest);
  }
  return scores;
}

void put_model(const GgufTokenizer& tokenizer, std::string& out) {
  const Vocabulary& vocabulary = tokenizer.vocabulary;
  const Json& model = tokenizer.stages.at("model");
  for (const auto& [key, value] : model.items()) {
    out += fmt::format("{}: {},\n", json_text(key), value.dump());
  }
  if (tokenizer.unigrams) {
    const std::vector<float> scores = written_scores(*tokenizer.unigrams);
    out += "\"vocab\": [";
    put_lines(
        scores.size(),
        [&](std::size_t i) {
          return fmt::format("[{}, {}]", json_text(tokenizer.unigrams->entries[i].text),
                             Json(static_cast<double>(scores[i])).dump());
        },
        out);
    out += ']';
    return;
  }
  out += "\"vocab\": {";
  put_lines(
      vocabulary.size(),
      [&](std::size_t i) {
        return fmt::format("{}: {}", json_text(vocabulary.text(i)), vocabulary.id(i));
      },
      out);
  out += '}';
  if (model.at("type") != "BPE") return;
  out += ",\n\"merges\": [";
  put_lines(
      tokenizer.merges.size(),
      [&](std::size_t i) {
        const Merge& merge = tokenizer.merges[i];
        return fmt::format("[{}, {}]", json_text(*vocabulary.token(merge.left)),
                           json_text(*vocabulary.token(merge.right)));
      },
      out);
  out += ']';
}

std::string tokenizer_json(const GgufTokenizer& tokenizer) {
  std::string out = "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n";
  out += "\"added_tokens\": [";
  put_lines(
      tokenizer.added.size(),
      [&](std::size_t i) {
        const AddedToken& token = tokenizer.added[i];
        return added_token(token, *tokenizer.vocabulary.find(token.content));
      },
      out);
  out += "],\n";
  for (const auto& [key, value] : tokenizer.stages.items()) {
    if (key != "model") out += fmt::format("{}: {},\n", json_text(key), value.dump());
  }
  out += "\"model\": {\n";
  put_model(tokenizer, out);
  out += "\n}\n}\n";
  return out;
}

}  // namespace

std::vector<TextFile> make_gguf_files(const core::GgufHeader& header, std::string_view source) {
  const GgufTokenizer tokenizer = parse_gguf_tokenizer(header, source);
  std::vector<TextFile> files;
  files.push_back({"tokenizer.json", tokenizer_json(tokenizer)});
  files.push_back({"tokenizer_config.json", tokenizer.config.dump(2) + "\n"});
  if (!tokenizer.generation.empty()) {
    files.push_back({"generation_config.json", tokenizer.generation.dump(2) + "\n"});
  }
  return files;
}

}  // namespace haul::tokenizers
