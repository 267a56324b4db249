#include "tokenizers/tokenizer_json.h"

#include <fmt/format.h>

#include "core/base/big_json.h"
#include "haul/error.h"

namespace haul::tokenizers {
namespace {

NamedId read_named_id(const JsonValue& value) {
  const std::vector<JsonValue> parts = value.items();
  if (parts.size() != 2) value.refuse("a token and its id");
  return {std::string(parts[0].string()), parts[1].id()};
}

std::vector<TemplatePiece> read_template(const JsonValue& value, const JsonValue& specials) {
  std::vector<TemplatePiece> pieces;
  for (const JsonValue& item : value.items()) {
    TemplatePiece piece;
    if (const auto sequence = item.find("Sequence")) {
      const JsonValue id = sequence->at("id");
      if (id.string() == "B") {
        piece.kind = TemplatePiece::Kind::kSecond;
      } else if (id.string() != "A") {
        id.refuse("A or B");
      }
      piece.type_id = sequence->at("type_id").id();
    } else {
      const JsonValue special = item.at("SpecialToken");
      piece.kind = TemplatePiece::Kind::kSpecial;
      piece.type_id = special.at("type_id").id();
      const JsonValue entry = specials.at(special.at("id").string());
      const std::vector<JsonValue> ids = entry.at("ids").items();
      const std::vector<JsonValue> tokens = entry.at("tokens").items();
      if (ids.size() != tokens.size()) entry.refuse("as many ids as tokens");
      for (std::size_t i = 0; i < ids.size(); ++i) {
        piece.special.push_back({std::string(tokens[i].string()), ids[i].id()});
      }
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Truncation read_truncation(const JsonValue& value) {
  Truncation truncation;
  truncation.max_length = value.at("max_length").unsigned_integer();
  truncation.stride = value.at("stride").unsigned_integer();
  truncation.left = value.string_or("direction", "Right") == "Left";
  const JsonValue strategy = value.at("strategy");
  if (strategy.string() == "OnlyFirst") {
    truncation.strategy = Truncation::Strategy::kOnlyFirst;
  } else if (strategy.string() == "OnlySecond") {
    truncation.strategy = Truncation::Strategy::kOnlySecond;
  } else if (strategy.string() != "LongestFirst") {
    strategy.refuse("LongestFirst, OnlyFirst or OnlySecond");
  }
  return truncation;
}

Padding read_padding(const JsonValue& value) {
  Padding padding;
  const JsonValue strategy = value.at("strategy");
  if (strategy.is_object()) {
    padding.fixed = strategy.at("Fixed").unsigned_integer();
  } else if (strategy.string() != "BatchLongest") {
    strategy.refuse("BatchLongest or a fixed length");
  }
  padding.left = value.at("direction").string() == "Left";
  if (const auto multiple = value.find("pad_to_multiple_of")) {
    padding.multiple_of = multiple->unsigned_integer();
  }
  padding.id = value.at("pad_id").id();
  padding.type_id = value.at("pad_type_id").id();
  padding.token = value.at("pad_token").string();
  // A file must not make every short text take gigabytes.
  constexpr std::size_t kLongest = std::size_t{1} << 24;
  if (padding.fixed.value_or(0) > kLongest || padding.multiple_of > kLongest) {
    strategy.refuse("padding to at most 2^24 tokens");
  }
  return padding;
}

}  // namespace

std::unique_ptr<PostProcessor> read_post_processor(const JsonValue& value) {
  const std::string_view type = value.at("type").string();
  if (type == "BertProcessing") {
    return make_bert_processor(read_named_id(value.at("sep")), read_named_id(value.at("cls")));
  }
  if (type == "RobertaProcessing") {
    return make_roberta_processor(read_named_id(value.at("sep")), read_named_id(value.at("cls")),
                                  value.at("trim_offsets").boolean(),
                                  value.at("add_prefix_space").boolean());
  }
  if (type == "ByteLevel") {
    return make_byte_level_processor(value.at("trim_offsets").boolean(),
                                     value.at("add_prefix_space").boolean());
  }
  if (type == "TemplateProcessing") {
    const JsonValue specials = value.at("special_tokens");
    return make_template_processor(read_template(value.at("single"), specials),
                                   read_template(value.at("pair"), specials));
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<PostProcessor>> parts;
    for (const JsonValue& part : value.at("processors").items()) {
      parts.push_back(read_post_processor(part));
    }
    return make_post_processor_sequence(std::move(parts));
  }
  throw Error(ErrorKind::kUnsupported,
              fmt::format("{}: unknown kind of post-processor '{}'", value.place(), type));
}

AddedToken read_added_token(const JsonValue& value) {
  AddedToken token;
  token.content = value.at("content").string();
  token.single_word = value.boolean_or("single_word", false);
  token.lstrip = value.boolean_or("lstrip", false);
  token.rstrip = value.boolean_or("rstrip", false);
  token.special = value.boolean_or("special", false);
  token.normalized = value.boolean_or("normalized", !token.special);
  return token;
}

void read_stages(const JsonValue& root, Pipeline& pipeline) {
  if (const auto value = root.find("normalizer")) {
    pipeline.normalizer = read_normalizer(*value, false);
    pipeline.later_normalizer = read_normalizer(*value, true);
    Text probe;
    probe.assign("a", 0, false);
    pipeline.later_normalizer->normalize(probe);
    const std::string later = probe.bytes();
    probe.assign("a", 0, false);
    pipeline.normalizer->normalize(probe);
    pipeline.prepends = probe.bytes() != later;
  }
  if (const auto value = root.find("pre_tokenizer")) {
    pipeline.pre_tokenizer = read_pre_tokenizer(*value);
  }
  if (const auto value = root.find("post_processor")) {
    pipeline.post_processor = read_post_processor(*value);
  }
  if (const auto value = root.find("decoder")) pipeline.decoder = read_decoder(*value);
}

Pipeline read_tokenizer_json(std::string_view json, std::string_view source) {
  const core::BigJson document(json, source);
  const JsonValue root(document.root(), std::string(source));
  if (const auto version = root.find("version"); version && version->string() != "1.0") {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: version '{}', and only 1.0 is known", source, version->string()));
  }
  Pipeline pipeline;
  pipeline.model = read_model(root.at("model"));
  read_stages(root, pipeline);
  if (const auto value = root.find("truncation")) pipeline.truncation = read_truncation(*value);
  if (const auto value = root.find("padding")) pipeline.padding = read_padding(*value);
  if (const auto value = root.find("added_tokens")) {
    std::vector<AddedToken> tokens;
    for (const JsonValue& token : value->items()) tokens.push_back(read_added_token(token));
    pipeline.added.add(tokens, pipeline.model->vocabulary(), pipeline.normalizer.get());
  }
  return pipeline;
}

}  // namespace haul::tokenizers
