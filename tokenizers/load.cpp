// Tokenizer::load: which of a model's files tells how it tokenizes.

#include <fmt/format.h>

#include "core/base/file.h"
#include "haul/bytes.h"
#include "haul/error.h"
#include "haul/tokenizer.h"
#include "tokenizers/sentencepiece.h"
#include "tokenizers/sources.h"
#include "tokenizers/state.h"
#include "tokenizers/tokenizer_json.h"

namespace haul {
namespace {

namespace fs = std::filesystem;
using tokenizers::Pipeline;

constexpr Bytes kLargestFile = 1 * kGiB;
constexpr const char* kSentencePieceNames[] = {"tokenizer.model", "spiece.model",
                                               "sentencepiece.bpe.model", "source.spm"};

Pipeline read_json(const fs::path& path) {
  const core::MappedFile file(path);
  return tokenizers::read_tokenizer_json(file.text(), path.string());
}

Pipeline read_model_file(const fs::path& path) {
  const std::string bytes = core::read_file(path, kLargestFile);
  return tokenizers::read_sentencepiece(bytes, path.string());
}

tokenizers::BpeFamily find_family(const std::string& class_name) {
  using tokenizers::BpeFamily;
  if (class_name.starts_with("Roberta")) return BpeFamily::kRoberta;
  if (class_name.starts_with("CLIP")) return BpeFamily::kClip;
  if (class_name.starts_with("Qwen2")) return BpeFamily::kQwen2;
  return BpeFamily::kGpt2;
}

Pipeline read_vocabulary(const fs::path& vocabulary) {
  const fs::path folder = vocabulary.parent_path();
  const tokenizers::ConfiguredClass configured = tokenizers::read_configured_class(folder);
  const std::string text = core::read_file(vocabulary, kLargestFile);
  if (vocabulary.extension() == ".txt") {
    return tokenizers::read_vocabulary_lines(text, configured.lowercase, vocabulary.string());
  }
  const std::string merges = core::read_file(folder / "merges.txt", kLargestFile);
  return tokenizers::read_vocabulary_and_merges(text, merges, find_family(configured.name),
                                                vocabulary.string());
}

Pipeline read_gguf_file(const fs::path& path) {
  const core::GgufFile file(path);
  return tokenizers::read_gguf(file.header(), path.string());
}

fs::path find_file(const fs::path& folder) {
  if (fs::is_regular_file(folder / "tokenizer.json")) return folder / "tokenizer.json";
  for (const char* name : kSentencePieceNames) {
    if (fs::is_regular_file(folder / name)) return folder / name;
  }
  if (fs::is_regular_file(folder / "vocab.json") && fs::is_regular_file(folder / "merges.txt")) {
    return folder / "vocab.json";
  }
  if (fs::is_regular_file(folder / "vocab.txt")) return folder / "vocab.txt";
  fs::path found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf" && (found.empty() || entry.path() < found)) {
      found = entry.path();
    }
  }
  if (!found.empty()) return found;
  throw Error(ErrorKind::kNotFound, fmt::format("{}: no tokenizer in this folder", folder.string()),
              "expected tokenizer.json, tokenizer.model, vocab.json with merges.txt, vocab.txt or "
              "a .gguf file");
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& path) {
  const bool is_folder = fs::is_directory(path);
  if (!is_folder && !fs::exists(path)) {
    throw Error(ErrorKind::kNotFound, fmt::format("{}: no such file or folder", path.string()));
  }
  const fs::path file = is_folder ? find_file(path) : path;
  const std::string name = file.filename().string();
  if (file.extension() == ".gguf") {
    return Tokenizer(std::make_shared<State>(read_gguf_file(file)));
  }
  const bool is_json = file.extension() == ".json" && !name.ends_with("vocab.json");
  Pipeline pipeline = is_json ? read_json(file)
                      : name.ends_with("vocab.json") || file.extension() == ".txt"
                          ? read_vocabulary(file)
                          : read_model_file(file);
  if (is_folder || !is_json) {
    tokenizers::apply_tokenizer_config(file.parent_path(), is_json, pipeline);
  }
  return Tokenizer(std::make_shared<State>(std::move(pipeline)));
}

}  // namespace haul
