// Writes on from a prompt with a GPT-2 that may be larger than the machine's memory: an empty
// model, a checkpoint put where there is room for it, and weights that come when they are needed.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <haul/error.h>
#include <haul/tokenizer.h>
#include <haul/torch/dispatch.h>
#include <haul/torch/empty_weights.h>

#include "config.h"
#include "flags.h"
#include "model.h"
#include "output.h"

namespace {

using haul::Error;
using haul::ErrorKind;

ModelConfig config_of(const Flags& flags) {
  ModelConfig config;
  const std::filesystem::path file = flags.model / "config.json";
  if (std::filesystem::exists(file)) config = read_config(file);
  GptConfig& gpt = config.gpt;
  gpt.n_layer = flags.n_layer.value_or(gpt.n_layer);
  gpt.n_head = flags.n_head.value_or(gpt.n_head);
  gpt.n_embd = flags.n_embd.value_or(gpt.n_embd);
  gpt.vocab_size = flags.vocab_size.value_or(gpt.vocab_size);
  gpt.n_positions = flags.n_positions.value_or(gpt.n_positions);
  check(gpt);
  return config;
}

haul::Placement placement_of(const std::string& device_map) {
  if (!device_map.ends_with(".json")) return haul::parse_map_mode(device_map);
  std::ifstream file(device_map);
  if (!file) throw Error(ErrorKind::kNotFound, device_map + ": cannot be read");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return haul::read_device_map(text, device_map);
}

at::Tensor prompt_ids(const haul::Tokenizer& tokenizer, const Flags& flags,
                      const GptConfig& config) {
  const std::vector<haul::TokenId> tokens = tokenizer.encode_ids(flags.prompt);
  if (tokens.empty()) throw Error(ErrorKind::kUsage, "the prompt has no tokens");
  for (const haul::TokenId token : tokens) {
    if (token < config.vocab_size) continue;
    throw Error(ErrorKind::kCorrupt,
                flags.model.string() + ": its tokenizer gives the id " + std::to_string(token) +
                    ", and the model knows " + std::to_string(config.vocab_size) + " tokens",
                "is it the tokenizer of this model?");
  }
  return at::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())).unsqueeze(0);
}

// Adds the likeliest token to (1, T) ids again and again.
template <typename Model>
void generate(Model& model, at::Tensor ids, const ModelConfig& config, std::int64_t count,
              Output* output) {
  const c10::InferenceMode no_gradients;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t start = std::max<std::int64_t>(0, ids.size(1) - config.gpt.n_positions);
    const at::Tensor logits = model(ids.slice(1, start));          // (1, V)
    const auto [logit, token] = logits.max(-1, /*keepdim=*/true);  // (1, 1)
    ids = at::cat({ids, token}, 1);
    const auto id = token.template item<std::int64_t>();
    output->take_new(static_cast<haul::TokenId>(id), logit.template item<float>());
    if (id == config.end_of_text) return;
  }
}

void run(const Flags& flags) {
  const ModelConfig config = config_of(flags);
  const haul::Tokenizer tokenizer = haul::Tokenizer::load(flags.model);
  const at::Tensor prompt = prompt_ids(tokenizer, flags, config.gpt);

  Gpt gpt{nullptr};
  {
    const haul::EmptyWeights scope;
    gpt = Gpt(config.gpt);
  }
  gpt->eval();
  haul::LoadOptions options;
  options.no_split_module_classes = {"Block"};
  options.offload_folder = flags.offload_folder;
  if (flags.max_memory) options.max_memory = haul::parse_max_memory(*flags.max_memory);
  auto model =
      haul::load_checkpoint_and_dispatch(gpt, flags.model, placement_of(flags.device_map), options);
  tell_map(haul::device_map(gpt));

  Output output(tokenizer, flags.json);
  for (std::int64_t i = 0; i < prompt.size(1); ++i) {
    output.take_prompt(static_cast<haul::TokenId>(prompt[0][i].item<std::int64_t>()));
  }
  generate(model, prompt, config, flags.max_new_tokens, &output);
  output.finish();
  output.tell_report(haul::dispatch_report(gpt));
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (const auto done = read_flags(argc, argv, &flags)) return *done;
  try {
    run(flags);
    return 0;
  } catch (const Error& error) {
    print_error(error.what(), error.hint());
    return error.kind() == ErrorKind::kUsage ? 2 : 1;
  } catch (const c10::Error& error) {
    print_error(error.what_without_backtrace(), {});
  } catch (const std::exception& error) {
    print_error(error.what(), {});
  }
  return 1;
}
