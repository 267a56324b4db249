#include "haul/tokenizer.h"

#include <algorithm>

#include "haul/error.h"
#include "tokenizers/sentencepiece.h"
#include "tokenizers/state.h"
#include "tokenizers/tokenizer_json.h"
#include "tokenizers/utf8.h"

namespace haul {
namespace {

using tokenizers::FastScratch;
using tokenizers::Pipeline;

// ASCII, which ends every character, is passed over in long strides.
bool is_well_formed(std::string_view text) {
  while (true) {
    text.remove_prefix(tokenizers::ascii_prefix(text));
    if (text.empty()) return true;
    std::size_t size = 1;
    while (size < text.size() && static_cast<unsigned char>(text[size]) >= 0x80) ++size;
    if (!tokenizers::is_utf8(text.substr(0, size))) return false;
    text.remove_prefix(size);
  }
}

// The text itself, or a repaired copy of it.
class WellFormed {
 public:
  explicit WellFormed(std::string_view text) : text_(text) {
    if (text.size() >= 0xFFFFFFFF) {
      throw Error(ErrorKind::kResource, "a text of 4 GiB or more cannot be tokenized at once",
                  "split it into lines");
    }
    if (!is_well_formed(text)) {
      repaired_ = tokenizers::to_utf8(text);
      text_ = repaired_;
    }
  }
  std::string_view text() const { return text_; }

 private:
  std::string repaired_;
  std::string_view text_;
};

std::optional<Tokenizer::State::Surround> find_surround(const Pipeline& pipeline) {
  Tokenizer::State::Surround surround;
  if (pipeline.post_processor == nullptr) return surround;
  constexpr TokenId kText = 0xFFFFFFFF;
  Encoding encoding;
  encoding.ids = {kText};
  encoding.type_ids = {0};
  encoding.tokens = {""};
  encoding.offsets = {{0, 0}};
  encoding.special_tokens_mask = {0};
  encoding.attention_mask = {1};
  const Encoding result = tokenizers::post_process(
      pipeline, {encoding}, {.add_special_tokens = true, .truncate_and_pad = false});
  if (std::count(result.ids.begin(), result.ids.end(), kText) != 1) return std::nullopt;
  const auto middle = std::find(result.ids.begin(), result.ids.end(), kText);
  surround.before.assign(result.ids.begin(), middle);
  surround.after.assign(middle + 1, result.ids.end());
  return surround;
}

}  // namespace

Tokenizer::State::State(Pipeline built) : pipeline(std::move(built)) {
  fast = tokenizers::FastRoute::find(pipeline);
  try {
    surround = find_surround(pipeline);
  } catch (const Error&) {
    surround = std::nullopt;  // a template that fails on one sequence fails when it is used
  }
}

Tokenizer::State::Lease::Lease(const State& state) : state_(state) {
  {
    const std::lock_guard lock(state.mutex_);
    if (!state.idle_.empty()) {
      scratch_ = std::move(state.idle_.back());
      state.idle_.pop_back();
    }
  }
  if (scratch_ == nullptr) scratch_ = std::make_unique<FastScratch>();
}

Tokenizer::State::Lease::~Lease() {
  const std::lock_guard lock(state_.mutex_);
  state_.idle_.push_back(std::move(scratch_));
}

void Tokenizer::State::append_ids(std::string_view text, const EncodeOptions& options,
                                  FastScratch& scratch, std::vector<TokenId>& ids) const {
  const WellFormed input(text);
  const bool cuts = options.truncate_and_pad && pipeline.truncation.has_value();
  if (!surround) {
    EncodeOptions unpadded = options;
    unpadded.truncate_and_pad = cuts;
    Encoding encoding = tokenizers::plain_encoding(pipeline, input.text(), 0, scratch.plain);
    encoding = tokenizers::post_process(pipeline, {std::move(encoding)}, unpadded);
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    return;
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), surround->before.begin(), surround->before.end());
  }
  const std::size_t begin = ids.size();
  if (fast) {
    fast->encode(input.text(), scratch, ids);
  } else {
    tokenizers::plain_ids(pipeline, input.text(), scratch.plain, ids);
  }
  if (cuts) {
    tokenizers::Truncation truncation = *pipeline.truncation;
    if (options.add_special_tokens) {
      truncation.max_length -= surround->before.size() + surround->after.size();
    }
    tokenizers::truncate_ids(ids, begin, truncation);
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), surround->after.begin(), surround->after.end());
  }
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view source) {
  return Tokenizer(std::make_shared<State>(tokenizers::read_tokenizer_json(json, source)));
}

Tokenizer Tokenizer::from_sentencepiece(std::string_view bytes, std::string_view source) {
  return Tokenizer(std::make_shared<State>(tokenizers::read_sentencepiece(bytes, source)));
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const State::Lease scratch(*state_);
  const WellFormed input(text);
  return tokenizers::post_process(
      state_->pipeline,
      {tokenizers::plain_encoding(state_->pipeline, input.text(), 0, (*scratch).plain)}, options);
}

Encoding Tokenizer::encode_pair(std::string_view text, std::string_view pair,
                                const EncodeOptions& options) const {
  const State::Lease scratch(*state_);
  const WellFormed first(text);
  const WellFormed second(pair);
  std::vector<Encoding> both;
  both.push_back(tokenizers::plain_encoding(state_->pipeline, first.text(), 0, (*scratch).plain));
  both.push_back(tokenizers::plain_encoding(state_->pipeline, second.text(), 1, (*scratch).plain));
  return tokenizers::post_process(state_->pipeline, std::move(both), options);
}

std::vector<TokenId> Tokenizer::encode_ids(std::string_view text,
                                           const EncodeOptions& options) const {
  const State::Lease scratch(*state_);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 16);
  state_->append_ids(text, options, *scratch, ids);
  if (options.truncate_and_pad && state_->pipeline.padding) {
    tokenizers::pad_ids(ids, tokenizers::padded_length(ids.size(), *state_->pipeline.padding),
                        *state_->pipeline.padding);
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  return tokenizers::decode(state_->pipeline, ids, skip_special_tokens);
}

StreamDecoder Tokenizer::stream(bool skip_special_tokens) const {
  return StreamDecoder(state_, skip_special_tokens);
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  if (const auto id = state_->pipeline.added.find(token)) return id;
  return state_->pipeline.model->vocabulary().find(token);
}

std::optional<std::string> Tokenizer::id_to_token(TokenId id) const {
  if (const std::string* text = state_->pipeline.added.text(id)) return *text;
  const auto entry = state_->pipeline.model->vocabulary().token(id);
  if (!entry) return std::nullopt;
  return std::string(*entry);
}

std::size_t Tokenizer::vocabulary_size() const {
  const tokenizers::Vocabulary& vocabulary = state_->pipeline.model->vocabulary();
  return vocabulary.size() + state_->pipeline.added.new_count(vocabulary);
}

bool Tokenizer::is_special(TokenId id) const {
  const std::string* text = state_->pipeline.added.text(id);
  return text != nullptr && state_->pipeline.added.is_special(*text);
}

const SpecialTokens& Tokenizer::special_tokens() const {
  return state_->pipeline.special;
}

const std::optional<std::string>& Tokenizer::chat_template() const {
  return state_->pipeline.chat_template;
}

}  // namespace haul
