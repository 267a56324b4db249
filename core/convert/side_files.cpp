#include "core/convert/side_files.h"

#include <array>
#include <string_view>

#include "core/base/file.h"
#include "core/base/json.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "config.json";

constexpr std::array<std::string_view, 6> kModelFiles{kConfig,
                                                      "generation_config.json",
                                                      "preprocessor_config.json",
                                                      "processor_config.json",
                                                      "image_processor_config.json",
                                                      "video_preprocessor_config.json"};

constexpr std::array<std::string_view, 12> kTokenizerFiles{"tokenizer.json",
                                                           "tokenizer_config.json",
                                                           "special_tokens_map.json",
                                                           "added_tokens.json",
                                                           "vocab.json",
                                                           "merges.txt",
                                                           "vocab.txt",
                                                           "tokenizer.model",
                                                           "spiece.model",
                                                           "sentencepiece.bpe.model",
                                                           "chat_template.jinja",
                                                           "chat_template.json"};

// Transformers loads weights in the type that the config names.
std::string with_dtype(const fs::path& config, Dtype dtype) {
  Json json = read_json(config);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (json.is_object() && json.contains(key)) json[key] = torch_name(dtype);
  }
  return json.dump(2) + "\n";
}

}  // namespace

std::vector<std::string> copy_side_files(const fs::path& from, const fs::path& to,
                                         std::optional<Dtype> dtype, bool tokenizer) {
  std::vector<std::string_view> names(kModelFiles.begin(), kModelFiles.end());
  if (tokenizer) names.insert(names.end(), kTokenizerFiles.begin(), kTokenizerFiles.end());
  std::vector<std::string> copied;
  for (const std::string_view name : names) {
    const fs::path source = from / name;
    std::error_code ignored;
    if (!fs::is_regular_file(source, ignored)) continue;
    if (name == kConfig && dtype) {
      write_file_atomically(to / name, with_dtype(source, *dtype));
    } else {
      write_file_atomically(to / name, MappedFile(source).text());
    }
    copied.emplace_back(name);
  }
  return copied;
}

}  // namespace haul::core
