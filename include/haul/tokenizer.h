#pragma once

// Text to token ids and back, with exactly the ids that the model's own tokenizer gives.
//
// A Tokenizer is immutable once loaded and may be used from any number of threads; copies share
// everything. Text that is not well-formed UTF-8 is read with U+FFFD in place of each ill-formed
// part. Failure is an Error: kNotFound and kCorrupt on loading, kUnsupported for text that a
// vocabulary without an unknown token cannot express, kResource for text of 4 GiB or more.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace haul {

using TokenId = std::uint32_t;

// Parallel lists, one element a token.
struct Encoding {
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> type_ids;  // which sequence of a pair
  std::vector<std::string> tokens;
  std::vector<std::pair<std::size_t, std::size_t>> offsets;  // in characters of the sequence
  std::vector<std::uint32_t> special_tokens_mask;
  std::vector<std::uint32_t> attention_mask;
  std::vector<Encoding> overflowing;  // what truncation cut off
};

struct EncodeOptions {
  bool add_special_tokens = true;
  // The tokenizer's own truncation and padding; transformers switches both off unless asked.
  bool truncate_and_pad = true;
};

// The ids of many texts: those of text i are ids[ends[i - 1]] to ids[ends[i]].
struct EncodedBatch {
  std::vector<TokenId> ids;
  std::vector<std::size_t> ends;
};

// The tokens that a model's configuration names.
struct SpecialTokens {
  std::optional<std::string> bos, eos, unk, sep, pad, cls, mask;
};

// What a chat has besides its messages. The texts are JSON, empty where there is nothing.
struct ChatOptions {
  bool add_generation_prompt = false;  // end where the assistant begins to speak
  std::string tools;                   // an array of functions' JSON schemas
  std::string documents;               // an array of objects
  std::string variables;               // an object: what else the template may look at
};

class StreamDecoder;

class Tokenizer {
 public:
  // A folder of model files, a tokenizer.json, a sentencepiece .model, a vocab.txt, a vocab.json
  // with merges.txt beside it, or a .gguf file.
  static Tokenizer load(const std::filesystem::path& path);
  // The text of a tokenizer.json; `source` names it in messages.
  static Tokenizer from_json(std::string_view json, std::string_view source);
  // The bytes of a sentencepiece model.
  static Tokenizer from_sentencepiece(std::string_view bytes, std::string_view source);

  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode_pair(std::string_view text, std::string_view pair,
                       const EncodeOptions& options = {}) const;
  // Ids alone, by the fastest route there is.
  std::vector<TokenId> encode_ids(std::string_view text, const EncodeOptions& options = {}) const;
  // Over `threads` threads; 0: as many as the machine has.
  EncodedBatch encode_batch(std::span<const std::string_view> texts,
                            const EncodeOptions& options = {}, unsigned threads = 0) const;

  // Ids that the vocabulary lacks are left out.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;
  // Lives no longer than this tokenizer.
  StreamDecoder stream(bool skip_special_tokens = false) const;

  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(TokenId id) const;
  // Entries of the model and added ones together.
  std::size_t vocabulary_size() const;
  bool is_special(TokenId id) const;

  const SpecialTokens& special_tokens() const;
  // The Jinja source of the chat template, from whichever file has one.
  const std::optional<std::string>& chat_template() const;
  // The text of a chat by the model's template, to be encoded without special tokens. `messages`
  // is a JSON array of objects with a role and a content. Throws Error: kNotFound without a
  // template, kUsage for messages that the template refuses, kCorrupt for a broken template,
  // kResource for one that takes too much.
  std::string apply_chat(std::string_view messages, const ChatOptions& options = {}) const;

  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

// Decodes ids as they come. What push() returns are whole characters; together with what finish()
// returns they are the decoding of all ids. For one thread.
class StreamDecoder {
 public:
  std::string push(TokenId id);
  std::string finish();

 private:
  friend class Tokenizer;
  StreamDecoder(std::shared_ptr<const Tokenizer::State> state, bool skip_special_tokens)
      : state_(std::move(state)), skip_special_tokens_(skip_special_tokens) {}

  std::string text_from(std::size_t first) const;

  std::shared_ptr<const Tokenizer::State> state_;
  bool skip_special_tokens_;
  std::vector<TokenId> ids_;
  std::size_t window_ = 0;   // decoding starts here
  std::size_t emitted_ = 0;  // of ids_, and their text from the window on
  std::string emitted_text_;
  std::string all_emitted_;
};

}  // namespace haul
