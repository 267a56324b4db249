// vocab.json with merges.txt, and vocab.txt: a model alone, to which the family adds the stages.

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/scanners.h"
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

std::unique_ptr<PreTokenizer> split_then_bytes(Scanner scanner, SplitBehavior behavior,
                                               bool invert) {
  const std::string pattern(pattern_of(scanner));
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(make_split(make_regex(pattern), behavior, invert, pattern));
  parts.push_back(make_byte_level(false, false));
  return make_pre_tokenizer_sequence(std::move(parts));
}

std::unique_ptr<PreTokenizer> digits_then_bytes() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(make_digits(true));
  parts.push_back(make_byte_level(false, true));
  return make_pre_tokenizer_sequence(std::move(parts));
}

std::unique_ptr<Normalizer> clip_normalizer() {
  std::vector<std::unique_ptr<Normalizer>> parts;
  parts.push_back(make_normal_form(NormalForm::kNfc));
  parts.push_back(make_replace(make_regex(R"(\s+)"), " ", ReplaceTraits{}));
  parts.push_back(make_lowercase());
  return make_normalizer_sequence(std::move(parts));
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
  set_stages(pipeline, family);
  return pipeline;
}

void set_stages(Pipeline& pipeline, BpeFamily family) {
  pipeline.decoder = make_byte_level_decoder();
  switch (family) {
    case BpeFamily::kGpt2:
    case BpeFamily::kRoberta:
      pipeline.pre_tokenizer = make_byte_level(false, true);
      break;
    case BpeFamily::kSmolLm:
      pipeline.pre_tokenizer = digits_then_bytes();
      break;
    case BpeFamily::kQwen2:
      pipeline.normalizer = make_normal_form(NormalForm::kNfc);
      pipeline.later_normalizer = make_normal_form(NormalForm::kNfc);
      pipeline.pre_tokenizer = split_then_bytes(Scanner::kQwen2, SplitBehavior::kIsolated, false);
      break;
    case BpeFamily::kLlama3:
      pipeline.pre_tokenizer = split_then_bytes(Scanner::kCl100k, SplitBehavior::kIsolated, false);
      break;
    case BpeFamily::kGpt4o:
      pipeline.pre_tokenizer = split_then_bytes(Scanner::kO200k, SplitBehavior::kIsolated, false);
      break;
    case BpeFamily::kClip:
      pipeline.normalizer = clip_normalizer();
      pipeline.later_normalizer = clip_normalizer();
      pipeline.pre_tokenizer = split_then_bytes(Scanner::kClip, SplitBehavior::kRemoved, true);
      break;
  }
  if (family == BpeFamily::kClip) {
    add_special(pipeline, {"<|startoftext|>", "<|endoftext|>"});
    const auto sep = find_named(pipeline, "<|endoftext|>");
    const auto cls = find_named(pipeline, "<|startoftext|>");
    if (sep && cls) pipeline.post_processor = make_roberta_processor(*sep, *cls, false, false);
  } else if (family == BpeFamily::kRoberta) {
    add_special(pipeline, {"<s>", "</s>", "<unk>", "<pad>", "<mask>"});
    const auto sep = find_named(pipeline, "</s>");
    const auto cls = find_named(pipeline, "<s>");
    if (sep && cls) pipeline.post_processor = make_roberta_processor(*sep, *cls, true, false);
  } else {
    pipeline.post_processor = make_byte_level_processor(false, false);
    add_special(pipeline, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
  }
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
  set_bert_stages(pipeline, lowercase);
  return pipeline;
}

void set_bert_stages(Pipeline& pipeline, bool lowercase) {
  const BertOptions options{true, true, lowercase, lowercase};
  pipeline.normalizer = make_bert_normalizer(options);
  pipeline.later_normalizer = make_bert_normalizer(options);
  pipeline.pre_tokenizer = make_bert_pre_tokenizer();
  pipeline.decoder = make_word_piece_decoder("##", true);
  add_special(pipeline, {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"});
  const auto sep = find_named(pipeline, "[SEP]");
  const auto cls = find_named(pipeline, "[CLS]");
  if (sep && cls) pipeline.post_processor = make_bert_processor(*sep, *cls);
}

void set_ends(Pipeline& pipeline, const std::optional<std::string>& before,
              const std::optional<std::string>& after) {
  std::vector<TemplatePiece> single;
  std::vector<TemplatePiece> pair;
  const auto put_special = [&](const std::optional<std::string>& token, std::uint32_t type_id,
                               std::vector<TemplatePiece>& pieces) {
    if (!token) return;
    const auto named = find_named(pipeline, *token);
    if (named) pieces.push_back({TemplatePiece::Kind::kSpecial, type_id, {*named}});
  };
  put_special(before, 0, single);
  single.push_back({TemplatePiece::Kind::kFirst, 0, {}});
  put_special(after, 0, single);
  pair = single;
  put_special(before, 1, pair);
  pair.push_back({TemplatePiece::Kind::kSecond, 1, {}});
  put_special(after, 1, pair);
  pipeline.post_processor = make_template_processor(std::move(single), std::move(pair));
}

}  // namespace haul::tokenizers
