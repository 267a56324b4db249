#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "kernels/likeliest.h"
#include "runtime/dispatch/lack_of_memory.h"
#include "runtime/generate/beam_search.h"
#include "runtime/generate/head.h"
#include "runtime/generate/input_ids.h"
#include "runtime/generate/passes.h"
#include "runtime/generate/state.h"
#include "runtime/generate/stop_strings.h"
#include "runtime/tiers/gpu.h"

namespace haul {
namespace {

using runtime::Passes;
using runtime::Sampling;

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
      : state_(state),
        options_(options),
        sampling_(sampling_for(state.generation, options)),
        beams_(beams_for(state.generation, options)) {
    stop_tokens_ = state.generation.stop_tokens;
    stop_tokens_.insert(stop_tokens_.end(), options.stop_tokens.begin(), options.stop_tokens.end());
    if (beams_.count > 1) check_beams();
  }

  std::vector<Generated> run(const std::vector<std::vector<TokenId>>& prompts,
                             const OnToken& on_token) {
    start_ = std::chrono::steady_clock::now();
    state_.figures = {};
    std::vector<Generated> results =
        runtime::telling_lack_of_memory(state_.name, state_.plan.devices, [&] {
          Passes passes(state_, prompts);
          return beams_.count > 1 ? search(passes, prompts.size(), on_token)
                                  : decode(passes, prompts.size(), on_token);
        });
    for (std::size_t i = 0; i < prompts.size(); ++i) results[i].prompt_ids = prompts[i];
    return results;
  }

 private:
  void check_beams() const {
    if (!sampling_.greedy) {
      throw Error(ErrorKind::kUnsupported,
                  fmt::format("{}: {} beams, and tokens by chance: haul does either", state_.name,
                              beams_.count),
                  "ask for one beam, or for a temperature of 0");
    }
    if (!options_.stop.empty()) {
      throw Error(ErrorKind::kUnsupported, "stop strings do not go with beams",
                  "ask for one beam, or give stop tokens");
    }
  }

  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }

  std::int64_t most_new_tokens(const Passes& passes) const {
    const std::int64_t room = passes.room();
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

  // After each step, with how many of the sequences go on.
  void note_step(std::int64_t going) {
    GenerateFigures& figures = state_.figures;
    const double now =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (figures.first_token_seconds == 0) figures.first_token_seconds = now;
    figures.decode_seconds = now - figures.first_token_seconds;
    figures.decoded += std::exchange(going_, going);
  }

  std::vector<Generated> search(Passes& passes, std::size_t prompts, const OnToken& on_token) {
    auto results = runtime::search_beams(
        passes, prompts,
        {beams_, sampling_.repetition_penalty, stop_tokens_, most_new_tokens(passes),
         options_.cancel, [&](std::int64_t going) { note_step(going); }});
    for (std::size_t row = 0; row < prompts; ++row) {
      const Generated& result = results[row];
      const std::size_t stop = result.reason == StopReason::kStopToken ? 1 : 0;
      for (std::size_t i = 0; i + stop < result.ids.size(); ++i) on_token(row, result.ids[i]);
    }
    return results;
  }

  // A token of each sequence at a time.
  std::vector<Generated> decode(Passes& passes, std::size_t prompts, const OnToken& on_token) {
    const std::int64_t most = most_new_tokens(passes);
    std::vector<Sequence> sequences;
    for (std::size_t row = 0; row < prompts; ++row) {
      sequences.push_back({passes.beginning(row), {}, false});
    }
    StopReason reason = StopReason::kCancelled;
    const at::Tensor logits = passes.read_prompts(most, options_.cancel);
    std::vector<TokenId> ids;
    if (logits.defined()) ids = pick_ids(logits, 0, sequences);
    const bool ahead = is_by_likelihood() && passes.goes_ahead();
    std::int64_t started = 0;
    for (std::int64_t step = 0; !ids.empty(); ++step) {
      const at::Tensor next = accept(ids, passes.padding(), sequences, on_token);
      const auto going = std::count_if(sequences.begin(), sequences.end(),
                                       [](const Sequence& s) { return !s.ended; });
      note_step(going);
      if (step + 1 == most) reason = StopReason::kLength;
      if (going == 0 || step + 1 == most || cancelled()) break;
      if (!ahead) {
        ids = pick_ids(passes.read(next), step + 1, sequences);
        continue;
      }
      // The GPU is at the pass after the one that is looked at here.
      for (; started < std::min(step + 2, most - 1); ++started) {
        passes.start(started == 0 ? next : at::Tensor());
      }
      ids = ids_of(passes.take());
    }
    std::vector<Generated> results;
    for (Sequence& sequence : sequences) {
      if (!sequence.ended) sequence.result.reason = reason;
      results.push_back(std::move(sequence.result));
    }
    return results;
  }

  // Nothing but the likeliest token matters.
  bool is_by_likelihood() const { return sampling_.greedy && sampling_.repetition_penalty == 1.0; }

  static std::vector<TokenId> ids_of(const at::Tensor& numbers) {
    const auto* const first = numbers.const_data_ptr<std::int64_t>();
    return {first, first + numbers.numel()};
  }

  // Without a graph weights may be on their way, and the CPU at work beside the GPU.
  at::Tensor on_cpu(const at::Tensor& result) const {
    if (result.is_cuda() && !state_.replayed) {
      runtime::rest_until(runtime::point_of_current_stream(result.get_device()));
    }
    return result.to(at::kCPU);
  }

  // The next id of each sequence that goes on, by logits (B, 1, V).
  std::vector<TokenId> pick_ids(const at::Tensor& logits, std::int64_t step,
                                const std::vector<Sequence>& sequences) const {
    const at::Tensor last = logits.select(1, 0);
    // From a GPU ids alone have to come, not all scores.
    if (last.is_cuda() && is_by_likelihood()) return ids_of(on_cpu(kernels::likeliest(last)));
    const at::Tensor scores = on_cpu(last).to(at::kFloat).contiguous();
    const auto width = static_cast<std::size_t>(scores.size(1));
    std::vector<TokenId> ids(sequences.size());
    for (std::size_t row = 0; row < sequences.size(); ++row) {
      if (sequences[row].ended) continue;
      const std::span<float> line(scores.data_ptr<float>() + row * width, width);
      runtime::penalise(line, sequences[row].seen, sampling_.repetition_penalty);
      ids[row] = runtime::pick(line, sampling_, row, static_cast<std::uint64_t>(step));
    }
    return ids;
  }

  // Takes in a new id of each sequence. The same as (B, 1).
  at::Tensor accept(const std::vector<TokenId>& ids, std::int64_t padding,
                    std::vector<Sequence>& sequences, const OnToken& on_token) {
    at::Tensor next = at::full({static_cast<std::int64_t>(ids.size()), 1}, padding, at::kLong);
    for (std::size_t row = 0; row < sequences.size(); ++row) {
      Sequence& sequence = sequences[row];
      if (sequence.ended) continue;
      const TokenId id = ids[row];
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
  runtime::BeamSettings beams_;
  std::vector<TokenId> stop_tokens_;
  std::chrono::steady_clock::time_point start_;
  std::int64_t going_ = 0;  // sequences, after the last step
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
  const std::vector<std::vector<TokenId>> prompts = {{prompt.begin(), prompt.end()}};
  auto results = Decoder(*state_, options).run(prompts, [&](std::size_t, TokenId id) {
    return text.push(id);
  });
  Generated result = std::move(results.front());
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
  auto results = Decoder(*state_, options).run(prompts, [&](std::size_t row, TokenId id) {
    return texts[row].push(id);
  });
  for (std::size_t i = 0; i < results.size(); ++i) results[i].text = texts[i].finish();
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
  return runtime::telling_lack_of_memory(state_->name, state_->plan.devices, [&] {
    if (state_->dimensions().encoder_layers > 0) {
      // The decoder's first step.
      inputs.encoded = state_->model->encode(inputs.to(state_->device));
      inputs.encoded_attended = inputs.attended;
      inputs.ids = at::full({ids.size(0), 1}, static_cast<std::int64_t>(runtime::start_of(*state_)),
                            at::kLong);
      inputs.attended = inputs.positions = at::Tensor();
    }
    return state_->model->forward(inputs.to(state_->device)).to(at::kCPU, at::kFloat);
  });
}

at::Tensor LoadedModel::forward(std::span<const TokenId> ids) {
  return forward(runtime::one_sequence(ids, *state_));
}

}  // namespace haul
