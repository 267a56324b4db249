// vocab.json with merges.txt, and vocab.txt: a model alone, to which the family adds the stages.

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/sources.h"
#include "tokenizers/tokenizer_json.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

template <class Take>
void for_each_line(std::string_view text, Take&& take) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    take(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Reads the stages that a family's document describes.
void set_stages(const core::Json& stages, Pipeline& pipeline) {
  const std::string text = stages.dump();
  const core::BigJson document(text, "stages");
  read_stages(JsonValue(document.root(), "stages"), pipeline);
}

std::optional<NamedId> find_named(const Pipeline& pipeline, const std::string& token) {
  auto id = pipeline.added.find(token);
  if (!id) id = pipeline.model->vocabulary().find(token);
  if (!id) return std::nullopt;
  return NamedId{token, *id};
}

void add_special(Pipeline& pipeline, const std::vector<std::string>& tokens) {
  std::vector<AddedToken> added;
  for (const std::string& token : tokens) {
    if (pipeline.model->vocabulary().find(token)) {
      added.push_back({.content = token, .normalized = false, .special = true});
    }
  }
  pipeline.added.add(added, pipeline.model->vocabulary(), pipeline.normalizer.get());
}

void set_family(BpeFamily family, Pipeline& pipeline) {
  set_stages(byte_level_stages(family), pipeline);
  if (family == BpeFamily::kClip) {
    add_special(pipeline, {"<|startoftext|>", "<|endoftext|>"});
    const auto sep = find_named(pipeline, "<|endoftext|>");
    const auto cls = find_named(pipeline, "<|startoftext|>");
    pipeline.post_processor =
        sep && cls ? make_roberta_processor(*sep, *cls, false, false) : nullptr;
  } else if (family == BpeFamily::kRoberta) {
    add_special(pipeline, {"<s>", "</s>", "<unk>", "<pad>", "<mask>"});
    const auto sep = find_named(pipeline, "</s>");
    const auto cls = find_named(pipeline, "<s>");
    pipeline.post_processor =
        sep && cls ? make_roberta_processor(*sep, *cls, true, false) : nullptr;
  } else {
    add_special(pipeline, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
  }
}

}  // namespace

Pipeline read_vocabulary_and_merges(std::string_view vocabulary_json, std::string_view merges_text,
                                    BpeFamily family, std::string_view source) {
  const core::BigJson document(vocabulary_json, source);
  Vocabulary vocabulary;
  for (const auto& [token, id] : JsonValue(document.root(), std::string(source)).members()) {
    vocabulary.add(token, id.id());
  }
  vocabulary.finish();
  if (!is_utf8(merges_text)) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: its merges are not UTF-8", source));
  }
  std::vector<Merge> merges;
  std::size_t number = 0;
  for_each_line(merges_text, [&](std::string_view line) {
    ++number;
    if (line.starts_with("#version") || line.empty()) return;
    const auto parts = split_merge(line);
    if (!parts) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("{}: line {} of the merges is not two tokens", source, number));
    }
    merges.push_back(find_merge(vocabulary, parts->first, parts->second, 0,
                                static_cast<std::uint32_t>(merges.size()), source));
  });
  BpeOptions options;
  if (family == BpeFamily::kClip) {
    options.end_of_word_suffix = "</w>";
    options.unk_token = "<|endoftext|>";
  }
  Pipeline pipeline;
  pipeline.model = make_bpe(std::move(vocabulary), merges, std::move(options));
  set_family(family, pipeline);
  return pipeline;
}

Pipeline read_vocabulary_lines(std::string_view text, bool lowercase, std::string_view source) {
  if (!is_utf8(text)) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: the vocabulary is not UTF-8", source));
  }
  Vocabulary vocabulary;
  std::uint32_t id = 0;
  for_each_line(text, [&](std::string_view line) {
    while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
    vocabulary.add(line, id++);
  });
  vocabulary.finish();
  Pipeline pipeline;
  pipeline.model = make_word_piece(std::move(vocabulary), {});
  add_special(pipeline, {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"});
  set_stages(bert_stages(lowercase, find_named(pipeline, "[CLS]"), find_named(pipeline, "[SEP]")),
             pipeline);
  return pipeline;
}

void set_ends(Pipeline& pipeline, const std::optional<std::string>& before,
              const std::optional<std::string>& after) {
  const auto find = [&](const std::optional<std::string>& token) {
    return token ? find_named(pipeline, *token) : std::nullopt;
  };
  set_stages({{"post_processor", surround(find(before), find(after))}}, pipeline);
}

}  // namespace haul::tokenizers
