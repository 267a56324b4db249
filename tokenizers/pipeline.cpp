#include "tokenizers/pipeline.h"

#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

// Bytes of the original to characters, as the peer converts them.
class CharacterOffsets {
 public:
  explicit CharacterOffsets(std::string_view text) : is_ascii_(ascii_prefix(text) == text.size()) {
    if (is_ascii_) {
      size_ = text.size();
      return;
    }
    std::uint32_t index = 0;
    index_.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (i > 0 && !is_continuation(text[i])) ++index;
      index_.push_back(index);
    }
    size_ = text.size();
  }

  std::pair<std::size_t, std::size_t> convert(std::size_t begin, std::size_t end) const {
    if (begin >= size_) return {begin, end};
    if (end < size_) return {at(begin), at(end)};
    const std::size_t last = end > 0 && end - 1 < size_ ? at(end - 1) : at(begin) + 1;
    return {at(begin), last + 1};
  }

 private:
  std::size_t at(std::size_t byte) const { return is_ascii_ ? byte : index_[byte]; }

  bool is_ascii_;
  std::size_t size_ = 0;
  std::vector<std::uint32_t> index_;
};

// Bytes of the original that a token stands for.
std::pair<std::size_t, std::size_t> original(const Pieces& pieces, const Piece& piece,
                                             const Token& token) {
  const std::size_t begin = piece.begin + token.begin;
  const std::size_t end = piece.begin + token.end;
  if (end > piece.end || begin >= end) return {token.begin, token.end};
  return {pieces.text.spans()[begin].begin, pieces.text.spans()[end - 1].end};
}

void tokenize_piece(const Pipeline& pipeline, const Piece& piece, PlainScratch& scratch) {
  scratch.tokens.clear();
  if (piece.token != kNoToken) {
    const auto size = static_cast<std::uint32_t>(piece.end - piece.begin);
    scratch.tokens.push_back({piece.token, 0, size, true});
  } else {
    pipeline.model->tokenize(scratch.pieces.bytes(piece), scratch.tokens, scratch.model);
  }
}

}  // namespace

void split_text(const Pipeline& pipeline, std::string_view text, bool tracked,
                PlainScratch& scratch) {
  Pieces& pieces = scratch.pieces;
  pieces.text.clear(tracked);
  pieces.list.clear();
  scratch.raw.clear();
  pipeline.added.find_raw(text, scratch.raw);
  Text& part = scratch.part;
  for (const Piece& raw : scratch.raw) {
    part.assign(text.substr(raw.begin, raw.end - raw.begin), raw.begin, tracked);
    const std::size_t base = pieces.text.size();
    if (raw.token != kNoToken) {
      pieces.text.append(part, 0, part.size());
      pieces.list.push_back({base, pieces.text.size(), raw.token, raw.at_start});
      continue;
    }
    if (pipeline.normalizer != nullptr) pipeline.normalizer->normalize(part);
    scratch.found.clear();
    pipeline.added.find_normalized(part.bytes(), scratch.found);
    pieces.text.append(part, 0, part.size());
    for (const Piece& piece : scratch.found) {
      pieces.list.push_back(
          {base + piece.begin, base + piece.end, piece.token, raw.at_start && piece.at_start});
    }
  }
  if (pipeline.pre_tokenizer != nullptr) pipeline.pre_tokenizer->split(pieces);
}

void plain_ids(const Pipeline& pipeline, std::string_view text, PlainScratch& scratch,
               std::vector<TokenId>& ids) {
  // Where a text's first character went is known only with offsets.
  const bool tracked = pipeline.pre_tokenizer != nullptr && pipeline.pre_tokenizer->needs_start() &&
                       pipeline.normalizer != nullptr && pipeline.normalizer->may_move_start();
  split_text(pipeline, text, tracked, scratch);
  for (const Piece& piece : scratch.pieces.list) {
    tokenize_piece(pipeline, piece, scratch);
    for (const Token& token : scratch.tokens) ids.push_back(token.id);
  }
}

Encoding plain_encoding(const Pipeline& pipeline, std::string_view text, std::uint32_t type_id,
                        PlainScratch& scratch) {
  split_text(pipeline, text, true, scratch);
  const CharacterOffsets offsets(text);
  Encoding encoding;
  for (const Piece& piece : scratch.pieces.list) {
    tokenize_piece(pipeline, piece, scratch);
    const std::string_view bytes = scratch.pieces.bytes(piece);
    for (const Token& token : scratch.tokens) {
      encoding.ids.push_back(token.id);
      const auto entry = pipeline.model->vocabulary().token(token.id);
      encoding.tokens.emplace_back(
          token.is_surface || !entry ? bytes.substr(token.begin, token.end - token.begin) : *entry);
      const auto [begin, end] = original(scratch.pieces, piece, token);
      encoding.offsets.push_back(offsets.convert(begin, end));
    }
  }
  encoding.type_ids.assign(encoding.ids.size(), type_id);
  encoding.special_tokens_mask.assign(encoding.ids.size(), 0);
  encoding.attention_mask.assign(encoding.ids.size(), 1);
  return encoding;
}

Encoding post_process(const Pipeline& pipeline, std::vector<Encoding> encodings,
                      const EncodeOptions& options) {
  const bool is_pair = encodings.size() == 2;
  if (options.truncate_and_pad && pipeline.truncation) {
    Truncation truncation = *pipeline.truncation;
    if (options.add_special_tokens && pipeline.post_processor != nullptr) {
      truncation.max_length -= pipeline.post_processor->added(is_pair);
    }
    truncate(encodings, truncation);
  }
  if (pipeline.post_processor != nullptr) {
    for (std::size_t i = 0; i < encodings.size(); ++i) {
      encodings[i].type_ids.assign(encodings[i].ids.size(), static_cast<std::uint32_t>(i));
    }
    encodings = pipeline.post_processor->process(std::move(encodings), options.add_special_tokens);
  }
  Encoding result = join(std::move(encodings));
  if (options.truncate_and_pad && pipeline.padding) {
    pad(result, padded_length(result.ids.size(), *pipeline.padding), *pipeline.padding);
  }
  return result;
}

std::string decode(const Pipeline& pipeline, std::span<const TokenId> ids,
                   bool skip_special_tokens) {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    std::string_view text;
    if (const std::string* added = pipeline.added.text(id)) {
      text = *added;
    } else if (const auto entry = pipeline.model->vocabulary().token(id)) {
      text = *entry;
    } else {
      continue;
    }
    if (skip_special_tokens && pipeline.added.is_special(text)) continue;
    tokens.emplace_back(text);
  }
  std::string result;
  if (pipeline.decoder != nullptr) {
    pipeline.decoder->decode(tokens);
    for (const std::string& token : tokens) result += token;
  } else {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) result += ' ';
      result += tokens[i];
    }
  }
  return pipeline.clean_up_spaces ? clean_up_spaces(std::move(result), false) : result;
}

}  // namespace haul::tokenizers
