#include "tokenizers/sentencepiece.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

[[noreturn]] void refuse(std::string_view source, std::string_view what) {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", source, what));
}

// One message of a protobuf file.
class Message {
 public:
  Message(std::string_view bytes, std::string_view source) : rest_(bytes), source_(source) {}

  // The next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    number_ = key >> 3;
    switch (key & 7) {
      case 0:
        value_ = varint();
        bytes_ = {};
        break;
      case 1:
        bytes_ = take(8);
        break;
      case 2:
        bytes_ = take(varint());
        break;
      case 5:
        bytes_ = take(4);
        break;
      default:
        refuse(source_, "not a sentencepiece model: a field of an unknown type");
    }
    return true;
  }

  std::uint64_t number() const { return number_; }
  bool boolean() const { return value_ != 0; }
  std::uint64_t integer() const { return value_; }
  std::string_view bytes() const { return bytes_; }
  float single() const {
    float value = 0;
    if (bytes_.size() != sizeof(value)) refuse(source_, "a score that is no 32-bit number");
    std::memcpy(&value, bytes_.data(), sizeof(value));
    return value;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) refuse(source_, "not a sentencepiece model: it ends inside a number");
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
    refuse(source_, "not a sentencepiece model: a number of more than 64 bits");
  }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) {
      refuse(source_, fmt::format("not a sentencepiece model: a field of {} bytes with {} left",
                                  size, rest_.size()));
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  std::string_view source_;
  std::uint64_t number_ = 0;
  std::uint64_t value_ = 0;
  std::string_view bytes_;
};

SentencePieceModel::Entry parse_entry(std::string_view bytes, std::string_view source) {
  SentencePieceModel::Entry entry;
  Message message(bytes, source);
  while (message.next()) {
    if (message.number() == 1) {
      if (!is_utf8(message.bytes())) refuse(source, "a piece that is not UTF-8");
      entry.text = message.bytes();
    } else if (message.number() == 2) {
      entry.score = message.single();
      if (!std::isfinite(entry.score)) refuse(source, "a score that is not finite");
    } else if (message.number() == 3) {
      if (message.integer() < 1 || message.integer() > 6)
        refuse(source, "an unknown type of piece");
      entry.type = static_cast<PieceType>(message.integer());
    }
  }
  return entry;
}

void parse_trainer(std::string_view bytes, std::string_view source, SentencePieceModel& model) {
  constexpr std::uint64_t kUnigram = 1, kBpe = 2;
  Message message(bytes, source);
  while (message.next()) {
    if (message.number() == 3) {
      model.is_bpe = message.integer() == kBpe;
      if (!model.is_bpe && message.integer() != kUnigram) {
        throw Error(ErrorKind::kUnsupported,
                    fmt::format("{}: a sentencepiece model of words or characters", source));
      }
    } else if (message.number() == 24) {
      model.whitespace_is_suffix = message.boolean();
    } else if (message.number() == 35) {
      model.byte_fallback = message.boolean();
    }
  }
}

void parse_normalizer(std::string_view bytes, std::string_view source, SentencePieceModel& model) {
  Message message(bytes, source);
  while (message.next()) {
    switch (message.number()) {
      case 2:
        model.charsmap = message.bytes();
        break;
      case 3:
        model.add_dummy_prefix = message.boolean();
        break;
      case 4:
        model.remove_extra_whitespaces = message.boolean();
        break;
      case 5:
        model.escape_whitespaces = message.boolean();
        break;
      default:
        break;
    }
  }
}

bool is_text_piece(const SentencePieceModel::Entry& entry) {
  return entry.type == PieceType::kNormal || entry.type == PieceType::kUserDefined;
}

std::vector<double> unigram_scores(const SentencePieceModel& model) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const auto& entry : model.entries) {
    if (entry.type == PieceType::kNormal) highest = std::max(highest, entry.score);
  }
  std::vector<double> scores;
  for (const auto& entry : model.entries) {
    if (entry.type == PieceType::kNormal) {
      scores.push_back(entry.score);
    } else if (entry.type == PieceType::kUserDefined) {
      scores.push_back(static_cast<float>(entry.text.size()) * highest - 0.1f);
    } else {
      scores.push_back(std::numeric_limits<double>::quiet_NaN());
    }
  }
  return scores;
}

double lowest_score(const SentencePieceModel& model) {
  float lowest = std::numeric_limits<float>::infinity();
  for (const auto& entry : model.entries) {
    if (entry.type == PieceType::kNormal) lowest = std::min(lowest, entry.score);
  }
  return lowest;
}

std::unique_ptr<Decoder> make_text_decoder(const SentencePieceModel& model) {
  std::vector<std::unique_ptr<Decoder>> parts;
  parts.push_back(make_replace_decoder(make_literal("\xE2\x96\x81"), " "));
  parts.push_back(make_byte_fallback_decoder());
  parts.push_back(make_fuse_decoder());
  if (model.add_dummy_prefix && !model.whitespace_is_suffix) {
    parts.push_back(make_strip_decoder(U' ', 1, 0));
  }
  return make_decoder_sequence(std::move(parts));
}

}  // namespace

SentencePieceModel parse_sentencepiece(std::string_view bytes, std::string_view source) {
  SentencePieceModel model;
  Message message(bytes, source);
  while (message.next()) {
    if (message.number() == 1) {
      model.entries.push_back(parse_entry(message.bytes(), source));
    } else if (message.number() == 2) {
      parse_trainer(message.bytes(), source, model);
    } else if (message.number() == 3) {
      parse_normalizer(message.bytes(), source, model);
    }
  }
  if (model.entries.empty()) refuse(source, "not a sentencepiece model: it has no pieces");
  return model;
}

Vocabulary piece_vocabulary(const SentencePieceModel& model, std::string_view source) {
  Vocabulary vocabulary;
  vocabulary.reserve(model.entries.size(), model.entries.size() * 8);
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    const std::string& text = model.entries[i].text;
    if (text.empty() || vocabulary.find(text)) {
      refuse(source, fmt::format("piece {} is empty or given twice", i));
    }
    vocabulary.add(text, static_cast<std::uint32_t>(i));
  }
  vocabulary.finish();
  return vocabulary;
}

std::vector<Merge> make_merges(const SentencePieceModel& model, const Vocabulary& vocabulary) {
  std::vector<std::uint32_t> order(model.entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return model.entries[a].score > model.entries[b].score;
  });
  std::vector<Merge> merges;
  std::uint32_t rank = 0;
  float last = std::numeric_limits<float>::infinity();
  for (const std::uint32_t id : order) {
    const SentencePieceModel::Entry& entry = model.entries[id];
    if (entry.type != PieceType::kNormal || vocabulary.find(entry.text) != id) continue;
    if (entry.score < last) ++rank;
    last = entry.score;
    for (std::size_t i = 1; i < entry.text.size(); ++i) {
      if (is_continuation(entry.text[i])) continue;
      const auto left = vocabulary.find(std::string_view(entry.text).substr(0, i));
      const auto right = vocabulary.find(std::string_view(entry.text).substr(i));
      if (left && right && is_text_piece(model.entries[*left]) &&
          is_text_piece(model.entries[*right])) {
        merges.push_back({*left, *right, id, rank});
      }
    }
  }
  return merges;
}

Pipeline build_sentencepiece(const SentencePieceModel& model, std::string_view source) {
  Vocabulary vocabulary = piece_vocabulary(model, source);
  std::optional<std::uint32_t> unknown;
  std::vector<AddedToken> added;
  SentencePieceRules rules;
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    const SentencePieceModel::Entry& entry = model.entries[i];
    if (entry.type == PieceType::kUnknown) unknown = static_cast<std::uint32_t>(i);
    if (entry.type == PieceType::kControl) {
      added.push_back({.content = entry.text, .normalized = false, .special = true});
    }
    if (entry.type == PieceType::kUserDefined) {
      rules.verbatim.push_back(entry.text);
      if (model.is_bpe) added.push_back({.content = entry.text});
    }
  }
  Pipeline pipeline;
  if (model.is_bpe) {
    BpeOptions options;
    options.byte_fallback = model.byte_fallback;
    options.fuse_unk = true;
    if (unknown) options.unk_token = model.entries[*unknown].text;
    const std::vector<Merge> merges = make_merges(model, vocabulary);
    for (std::size_t i = 0; i < model.entries.size(); ++i) {
      if (!is_text_piece(model.entries[i])) options.hidden.push_back(static_cast<std::uint32_t>(i));
    }
    pipeline.model = make_bpe(std::move(vocabulary), merges, std::move(options));
  } else {
    UnigramOptions options;
    options.unk_id = unknown;
    options.byte_fallback = model.byte_fallback;
    options.single_precision = true;
    options.lowest_score = lowest_score(model);
    pipeline.model = make_unigram(std::move(vocabulary), unigram_scores(model), options);
  }
  try {
    if (!model.charsmap.empty()) rules.charsmap = Charsmap(model.charsmap);
  } catch (Error& error) {
    error.add_context(source);
    throw;
  }
  rules.add_dummy_prefix = model.add_dummy_prefix;
  rules.remove_extra_whitespaces = model.remove_extra_whitespaces;
  rules.escape_whitespaces = model.escape_whitespaces;
  rules.whitespace_is_suffix = model.whitespace_is_suffix;
  pipeline.normalizer = make_sentencepiece_normalizer(std::move(rules));
  pipeline.prepends = true;
  pipeline.decoder = make_text_decoder(model);
  pipeline.added.add(added, pipeline.model->vocabulary(), nullptr);
  return pipeline;
}

Pipeline read_sentencepiece(std::string_view bytes, std::string_view source) {
  return build_sentencepiece(parse_sentencepiece(bytes, source), source);
}

}  // namespace haul::tokenizers
