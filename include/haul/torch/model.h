#pragma once

// A model from its own files, and the words it gives.
//
//   haul::LoadedModel model = haul::load_model("HuggingFaceTB/SmolLM2-135M-Instruct");
//   model.generate("The capital of France is", {}, [](std::string_view text) { std::cout << text;
//   });
//
// A LoadedModel is used by one thread at a time; GenerateOptions::cancel may be set from another.
// Failures are Errors.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/dtype.h"
#include "haul/plan.h"
#include "haul/tokenizer.h"
#include "haul/torch/dispatch.h"

namespace haul {

// One of several processes that each have a run of a model's layers.
struct ModelPart {
  std::size_t index = 0;
  std::size_t count = 1;
  // The layers that parts begin with, but the first. Empty: parts of equal time, by the planner.
  std::vector<std::string> split_points = {};
};

struct ModelOptions {
  // Of weights, KV cache and activations. Nothing: as a given plan says, else as most weights are
  // stored, of quantised ones F32 on a CPU and BF16 on a GPU.
  std::optional<Dtype> dtype = std::nullopt;
  Placement placement = MapMode::kAuto;
  // Nothing: what the machine has free.
  std::optional<MaxMemory> max_memory = std::nullopt;
  std::filesystem::path offload_folder = {};
  // Tokens that a sequence may grow to, prompt included. Nothing: as a given plan says, else what
  // the model allows, but no more than 4096.
  std::optional<std::int64_t> context = std::nullopt;
  // Sequences at once that room is planned for. More can be generated as long as memory is left;
  // their prompts are then read a few at a time.
  std::int64_t batch = 1;
  // For each sequence, as GenerateOptions has it: room for them is planned. Nothing: as
  // generation_config.json says.
  std::optional<std::int64_t> num_beams = std::nullopt;
  // Only these layers, with what lies before the first and behind the last, are planned for and
  // loaded. Such a model takes part in a pipeline and does nothing alone. Throws
  // Error(kUnsupported) for a model that cannot be cut, Error(kUsage) for parts that cannot be.
  std::optional<ModelPart> part = std::nullopt;
  // Processes that load the same model beside this one. Nothing: none.
  std::shared_ptr<HostSharing> sharing = {};
  // Where all of a model lies on one GPU, a token's work is recorded and given to the GPU as a
  // whole (a CUDA graph), if its family can do that. False: kernel by kernel.
  bool graphs = true;
  // Told of the plan before anything is loaded.
  std::function<void(const Plan&)> on_plan = {};
  // Takes remarks, a line each. Nothing: stderr.
  std::function<void(const std::string&)> log = {};
};

// When a search over beams ends, once it holds as many complete continuations as it has beams.
enum class EarlyStopping : std::uint8_t {
  kNo,     // no beam is better now than the worst of them
  kYes,    // at once
  kNever,  // no beam can become better than the worst of them
};

// Where nothing is said, generation_config.json decides, then the defaults named here.
struct GenerateOptions {
  std::optional<std::int64_t> max_new_tokens = std::nullopt;  // until the context is full
  std::optional<double> temperature = std::nullopt;           // 0: always the likeliest token
  std::optional<std::int64_t> top_k = std::nullopt;           // 0: all
  std::optional<double> top_p = std::nullopt;                 // 1: all
  std::optional<double> min_p = std::nullopt;                 // 0: all
  std::optional<double> repetition_penalty = std::nullopt;    // 1: none
  // Above 1: so many continuations side by side, of which the likeliest as a whole is taken. Its
  // text comes at the end. Without sampling and stop strings.
  std::optional<std::int64_t> num_beams = std::nullopt;  // 1
  // Likelihoods are divided by the length to this power: above 0 longer ones are preferred.
  std::optional<double> length_penalty = std::nullopt;         // 1
  std::optional<EarlyStopping> early_stopping = std::nullopt;  // kNo
  std::uint64_t seed = 0;
  std::vector<std::string> stop = {};         // strings that end the text and are not part of it
  std::vector<TokenId> stop_tokens = {};      // beside the model's own
  const std::atomic<bool>* cancel = nullptr;  // becomes true: end at the next token
};

enum class StopReason : std::uint8_t { kStopToken, kStopString, kLength, kCancelled };

struct Generated {
  std::string text;
  std::vector<TokenId> ids;  // the new ones, the one that stopped included
  std::vector<TokenId> prompt_ids;
  StopReason reason = StopReason::kLength;
};

// What a model's files say that it is for.
enum class Task : std::uint8_t { kGenerate, kEmbed, kClassify, kFillMask };

struct Label {
  std::int64_t index = 0;  // among the model's labels
  std::string name;        // as the config has it; LABEL_0, LABEL_1, … where it has none
  double score = 0;        // a probability, or the value itself that a regression gives
};

// One that may stand in place of a mask.
struct Word {
  TokenId id = 0;
  std::string text;
  double score = 0;  // its probability
};

// Of the last call of generate().
struct GenerateFigures {
  double first_token_seconds = 0;
  double decode_seconds = 0;  // for the tokens after the first
  std::int64_t decoded = 0;   // how many those were, of all sequences
  std::int64_t replayed = 0;  // passes for them that a GPU has recorded
  double tokens_per_second() const {
    return decode_seconds > 0 ? static_cast<double>(decoded) / decode_seconds : 0;
  }
};

// Of the whole process, as the system counts it.
struct ProcessMemory {
  Bytes peak = 0;      // the most that it ever had
  Bytes libtorch = 0;  // of that: what it had with libtorch in use and before any model
};

class LoadedModel {
 public:
  using OnText = std::function<void(std::string_view)>;

  LoadedModel(LoadedModel&&) noexcept;
  LoadedModel& operator=(LoadedModel&&) noexcept;
  ~LoadedModel();

  const Tokenizer& tokenizer() const;
  const Plan& plan() const;
  const Description& description() const;
  std::int64_t context() const;
  double load_seconds() const;

  // Continues a prompt. `on_text` gets the text as it comes, whole characters at a time. Throws
  // Error(kUsage) for a prompt that leaves no room in the context, Error(kUnsupported) for a model
  // that does not generate and for beams with sampling or stop strings.
  Generated generate(std::string_view prompt, const GenerateOptions& options = {},
                     const OnText& on_text = {});
  Generated generate(std::span<const TokenId> prompt, const GenerateOptions& options = {},
                     const OnText& on_text = {});
  // Several at once, of any lengths.
  std::vector<Generated> generate_batch(const std::vector<std::vector<TokenId>>& prompts,
                                        const GenerateOptions& options = {});
  const GenerateFigures& figures() const;

  Task task() const;
  // One vector for a text: the hidden states, pooled and normalised as the model's
  // sentence-transformers files say; their mean where there are none. A text longer than those
  // files allow is cut, which the log tells. Throws Error(kUnsupported) for steps other than
  // pooling and normalising.
  std::vector<float> embed(std::string_view text);
  std::vector<float> embed(std::span<const TokenId> ids);
  // All labels, the likeliest first. Throws Error(kUnsupported) for a model that has none.
  std::vector<Label> classify(std::string_view text);
  std::vector<Label> classify(std::span<const TokenId> ids);
  // For each mask token in turn the likeliest words, the best first. Throws Error(kUsage) for a
  // text without one, Error(kUnsupported) for a model without a head for it.
  std::vector<std::vector<Word>> fill_mask(std::string_view text, std::size_t count = 5);
  std::vector<std::vector<Word>> fill_mask(std::span<const TokenId> ids, std::size_t count = 5);

  // One pass over ids (B, T), as the model's class has it: logits, hidden states or scores, on the
  // CPU in F32. `attended` (B, T) is false for padding; undefined: all are tokens.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& attended = {});
  // The same for one sequence. Throws Error(kUsage) for ids that the model does not have, and for
  // more of them than the context holds.
  at::Tensor forward(std::span<const TokenId> ids);

  // The layers that are loaded: all, or those of its part.
  std::vector<std::string> layers() const;
  // The bytes of weights that were read from the checkpoint to load it into memory.
  Bytes bytes_read() const;
  // What was moved and taken since the model was loaded.
  DispatchReport report() const;
  ProcessMemory process_memory() const;

  struct State;
  explicit LoadedModel(std::unique_ptr<State> state);
  // For what haul itself builds on a model.
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// A folder, a checkpoint file (GGUF too) or a name on the hub, as `haul run` takes it.
LoadedModel load_model(const std::string& name, const ModelOptions& options = {});

}  // namespace haul
