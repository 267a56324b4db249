#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/generate/head.h"
#include "runtime/generate/input_ids.h"
#include "runtime/generate/kv_cache.h"
#include "runtime/generate/state.h"
#include "runtime/generate/stop_strings.h"

namespace haul {
namespace {

using runtime::ModelCache;
using runtime::Sampling;

// Long prompts go through the model in parts, so that activations stay small.
constexpr std::int64_t kPromptPart = 1024;

// Nobody looks at it, but it must have a row; some configs name one beyond the last.
std::int64_t padding_of(const LoadedModel::State& state) {
  const runtime::GenerationConfig& config = state.generation;
  const std::int64_t id =
      config.padding.value_or(config.stop_tokens.empty() ? 0 : config.stop_tokens.front());
  return id < state.dimensions().vocabulary ? id : 0;
}

// What the decoder of a model with an encoder begins with.
std::int64_t start_of(const LoadedModel::State& state) {
  const auto& start = state.generation.decoder_start;
  return start ? static_cast<std::int64_t>(*start) : padding_of(state);
}

// One sequence as it grows.
struct Sequence {
  std::vector<TokenId> seen;  // prompt and new ones
  Generated result;
  bool ended = false;
};

// Called with each new token of each sequence; true ends the sequence.
using OnToken = std::function<bool(std::size_t row, TokenId id)>;

class Decoder {
 public:
  Decoder(LoadedModel::State& state, const GenerateOptions& options)
      : state_(state), options_(options), sampling_(sampling_for(state.generation, options)) {
    stop_tokens_ = state.generation.stop_tokens;
    stop_tokens_.insert(stop_tokens_.end(), options.stop_tokens.begin(), options.stop_tokens.end());
  }

  std::vector<Sequence> run(const std::vector<std::vector<TokenId>>& prompts,
                            const OnToken& on_token) {
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    std::vector<Sequence> sequences;
    for (const auto& prompt : prompts) {
      sequences.push_back({prompt, {}, false});
      sequences.back().result.prompt_ids = prompt;
    }
    const std::int64_t most = most_new_tokens(prompts);
    set_inputs(prompts);
    if (has_encoder()) encode_prompts(sequences);
    ModelCache cache(state_.windows, ids_.size(1) + most, state_.kv_room.get());
    GenerateFigures& figures = state_.figures;
    figures = {};
    at::Tensor logits = read_prompt(cache);
    if (!logits.defined()) {
      end_all(sequences, StopReason::kCancelled);
      return sequences;
    }
    for (std::int64_t step = 0;; ++step) {
      const at::Tensor next = choose(logits, step, sequences, on_token);
      if (step == 0) figures.first_token_seconds = seconds();
      const bool all = std::all_of(sequences.begin(), sequences.end(),
                                   [](const Sequence& s) { return s.ended; });
      figures.decode_seconds = seconds() - figures.first_token_seconds;
      if (all) break;
      if (step + 1 == most || cancelled()) {
        end_all(sequences, step + 1 == most ? StopReason::kLength : StopReason::kCancelled);
        break;
      }
      logits = pass(next, cache);
      for (const Sequence& sequence : sequences) figures.decoded += sequence.ended ? 0 : 1;
    }
    return sequences;
  }

 private:
  static void end_all(std::vector<Sequence>& sequences, StopReason reason) {
    for (Sequence& sequence : sequences) {
      if (!sequence.ended) sequence.result.reason = reason;
    }
  }

  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }

  bool has_encoder() const { return state_.dimensions().encoder_layers > 0; }

  // The encoder reads the prompts, and the decoder begins with a token of its own.
  void encode_prompts(std::vector<Sequence>& sequences) {
    models::Inputs inputs{ids_};
    inputs.attended = attended_;
    encoded_ = state_.model->encode(inputs);
    encoded_attended_ = std::exchange(attended_, {});
    ids_ = at::full({ids_.size(0), 1}, start_of(state_), at::kLong);
    runtime::check_ids(ids_, state_);
    for (Sequence& sequence : sequences) sequence.seen = {static_cast<TokenId>(start_of(state_))};
  }

  // Shorter prompts are padded: on the left, so that all end at the same place, or for an encoder
  // on the right.
  void set_inputs(const std::vector<std::vector<TokenId>>& prompts) {
    std::size_t longest = 0;
    for (const auto& prompt : prompts) {
      if (prompt.empty()) throw Error(ErrorKind::kUsage, "there is no prompt: it has no tokens");
      longest = std::max(longest, prompt.size());
    }
    const auto rows = static_cast<std::int64_t>(prompts.size());
    const auto columns = static_cast<std::int64_t>(longest);
    ids_ = at::full({rows, columns}, padding_of(state_), at::kLong);
    bool padded = false;
    at::Tensor attended = at::ones({rows, columns}, at::kBool);
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto& prompt = prompts[static_cast<std::size_t>(row)];
      const std::int64_t empty = columns - static_cast<std::int64_t>(prompt.size());
      std::copy(
          prompt.begin(), prompt.end(),
          ids_.mutable_data_ptr<std::int64_t>() + row * columns + (has_encoder() ? 0 : empty));
      if (empty == 0) continue;
      attended[row].narrow(0, has_encoder() ? columns - empty : 0, empty).fill_(false);
      padded = true;
    }
    runtime::check_ids(ids_, state_);
    if (!padded) return;
    attended_ = attended;
    positions_ = (attended.to(at::kLong).cumsum(1) - 1).clamp_min(0);
  }

  std::int64_t most_new_tokens(const std::vector<std::vector<TokenId>>& prompts) const {
    std::size_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    const std::int64_t room =
        state_.context - (has_encoder() ? 1 : static_cast<std::int64_t>(longest));
    if (room < 1) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("the prompt has {} tokens, and the context {}", longest, state_.context),
          "shorten the prompt, or plan for a longer context");
    }
    if (options_.max_new_tokens) {
      if (*options_.max_new_tokens < 1) {
        throw Error(ErrorKind::kUsage, "at least one new token must be asked for");
      }
      return std::min(room, *options_.max_new_tokens);
    }
    if (state_.generation.max_new_tokens) return std::min(room, *state_.generation.max_new_tokens);
    if (!state_.generation.max_length) return room;
    // A prompt that is longer already gets one token.
    return std::clamp<std::int64_t>(*state_.generation.max_length - (state_.context - room), 1,
                                    room);
  }

  at::Tensor forward(models::Inputs inputs, ModelCache& cache) {
    inputs.cache = &cache;
    inputs.last = 1;
    inputs.encoded = encoded_;
    inputs.encoded_attended = encoded_attended_;
    at::Tensor logits = state_.model->forward(inputs);
    cache.advance(inputs.ids.size(1));
    return logits;
  }

  // The last token's logits; undefined: cancelled before the end.
  at::Tensor read_prompt(ModelCache& cache) {
    at::Tensor logits;
    for (std::int64_t at = 0; at < ids_.size(1); at += kPromptPart) {
      if (cancelled()) return {};
      const std::int64_t count = std::min(kPromptPart, ids_.size(1) - at);
      models::Inputs inputs{ids_.narrow(1, at, count)};
      if (attended_.defined()) {
        inputs.attended = attended_.narrow(1, 0, at + count);
        inputs.positions = positions_.narrow(1, at, count);
      }
      logits = forward(std::move(inputs), cache);
    }
    return logits;
  }

  // One token for each sequence.
  at::Tensor pass(const at::Tensor& ids, ModelCache& cache) {
    models::Inputs inputs{ids};
    if (attended_.defined()) {
      attended_ = at::cat({attended_, at::ones({ids.size(0), 1}, at::kBool)}, 1);
      positions_ = positions_.narrow(1, positions_.size(1) - 1, 1) + 1;
      inputs.attended = attended_;
      inputs.positions = positions_;
    }
    return forward(std::move(inputs), cache);
  }

  // (B, 1, V) to the next ids (B, 1).
  at::Tensor choose(const at::Tensor& logits, std::int64_t step, std::vector<Sequence>& sequences,
                    const OnToken& on_token) {
    const at::Tensor scores = logits.select(1, 0).to(at::kCPU, at::kFloat).contiguous();
    at::Tensor next = at::full({scores.size(0), 1}, padding_of(state_), at::kLong);
    const auto width = static_cast<std::size_t>(scores.size(1));
    for (std::size_t row = 0; row < sequences.size(); ++row) {
      Sequence& sequence = sequences[row];
      if (sequence.ended) continue;
      const std::span<float> line(scores.data_ptr<float>() + row * width, width);
      runtime::penalise(line, sequence.seen, sampling_.repetition_penalty);
      const TokenId id = runtime::pick(line, sampling_, row, static_cast<std::uint64_t>(step));
      sequence.seen.push_back(id);
      sequence.result.ids.push_back(id);
      next[static_cast<std::int64_t>(row)][0] = static_cast<std::int64_t>(id);
      if (std::find(stop_tokens_.begin(), stop_tokens_.end(), id) != stop_tokens_.end()) {
        sequence.ended = true;
        sequence.result.reason = StopReason::kStopToken;
      } else if (on_token(row, id)) {
        sequence.ended = true;
        sequence.result.reason = StopReason::kStopString;
      }
    }
    return next;
  }

  LoadedModel::State& state_;
  const GenerateOptions& options_;
  Sampling sampling_;
  std::vector<TokenId> stop_tokens_;
  at::Tensor ids_;        // (B, T) of the prompts
  at::Tensor attended_;   // (B, S); undefined: no padding
  at::Tensor positions_;  // likewise
  at::Tensor encoded_;    // (B, E, C) of a model with an encoder
  at::Tensor encoded_attended_;
};

// The text of a sequence as it comes.
class TextStream {
 public:
  // Without a tokenizer there is no text.
  TextStream(const Tokenizer* tokenizer, const std::vector<std::string>& stop,
             const LoadedModel::OnText& on_text)
      : stop_(stop), on_text_(on_text) {
    if (tokenizer != nullptr) decoder_ = tokenizer->stream(true);
  }

  // Whether a stop string came.
  bool push(TokenId id) {
    if (decoder_) show(stop_.push(decoder_->push(id)));
    return stop_.found();
  }
  std::string finish() {
    if (decoder_ && !stop_.found()) show(stop_.push(decoder_->finish()));
    show(stop_.finish());
    return std::move(text_);
  }

 private:
  void show(const std::string& text) {
    if (text.empty()) return;
    text_ += text;
    if (on_text_) on_text_(text);
  }

  std::optional<StreamDecoder> decoder_;
  runtime::StopStrings stop_;
  const LoadedModel::OnText& on_text_;
  std::string text_;
};

void check_generates(const LoadedModel::State& state) {
  if (runtime::continues_texts(state.description.architecture)) return;
  throw Error(ErrorKind::kUnsupported, fmt::format("{}: a {} does not generate text", state.name,
                                                   state.description.architecture));
}

// Ids alone can be continued without one, unless text has to be looked at.
const Tokenizer* tokenizer_for(const LoadedModel& model, const GenerateOptions& options) {
  try {
    return &model.tokenizer();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotFound || !options.stop.empty()) throw;
    return nullptr;
  }
}

}  // namespace

Generated LoadedModel::generate(std::string_view prompt, const GenerateOptions& options,
                                const OnText& on_text) {
  return generate(tokenizer().encode_ids(prompt, {true, false}), options, on_text);
}

Generated LoadedModel::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                const OnText& on_text) {
  check_generates(*state_);
  const at::NoGradGuard no_gradients;
  TextStream text(tokenizer_for(*this, options), options.stop, on_text);
  auto sequences =
      Decoder(*state_, options).run({{prompt.begin(), prompt.end()}}, [&](std::size_t, TokenId id) {
        return text.push(id);
      });
  Generated result = std::move(sequences.front().result);
  result.text = text.finish();
  return result;
}

std::vector<Generated> LoadedModel::generate_batch(const std::vector<std::vector<TokenId>>& prompts,
                                                   const GenerateOptions& options) {
  check_generates(*state_);
  if (prompts.empty()) return {};
  const at::NoGradGuard no_gradients;
  const OnText nobody;
  std::vector<TextStream> texts;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    texts.emplace_back(tokenizer_for(*this, options), options.stop, nobody);
  }
  auto sequences = Decoder(*state_, options).run(prompts, [&](std::size_t row, TokenId id) {
    return texts[row].push(id);
  });
  std::vector<Generated> results;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    results.push_back(std::move(sequences[i].result));
    results.back().text = texts[i].finish();
  }
  return results;
}

at::Tensor LoadedModel::forward(const at::Tensor& ids, const at::Tensor& attended) {
  const at::NoGradGuard no_gradients;
  runtime::check_ids(ids, *state_);
  models::Inputs inputs{ids};
  if (attended.defined()) {
    inputs.attended = attended;
    inputs.positions = (attended.to(at::kLong).cumsum(1) - 1).clamp_min(0);
  }
  if (state_->dimensions().encoder_layers > 0) {
    // The decoder's first step.
    inputs.encoded = state_->model->encode(inputs);
    inputs.encoded_attended = inputs.attended;
    inputs.ids = at::full({ids.size(0), 1}, start_of(*state_), at::kLong);
    inputs.attended = inputs.positions = at::Tensor();
  }
  return state_->model->forward(inputs).to(at::kCPU, at::kFloat);
}

at::Tensor LoadedModel::forward(std::span<const TokenId> ids) {
  return forward(runtime::one_sequence(ids, *state_));
}

}  // namespace haul
