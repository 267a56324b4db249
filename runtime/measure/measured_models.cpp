#include "runtime/measure/measured_models.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/json.h"
#include "haul/error.h"
#include "haul/torch/model.h"
#include "runtime/measure/random_checkpoint.h"

namespace haul::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPrompt = 8;
constexpr std::int64_t kTokens = 48;
constexpr std::int64_t kTokensFromRam = 16;
constexpr std::int64_t kTokensOnCpu = 8;
constexpr double kCallsOfALayer = 9;
constexpr std::int64_t kWidthByInput = 1600;           // as a GPT-2 XL
constexpr double kCallsByInput = 4, kCallsBeside = 2;  // of a layer of GPT-2
constexpr double kLeastSeconds = 1e-6;  // so that noise makes nothing infinitely fast

// A decoder whose layers are nearly all of it.
core::Json config_of(std::int64_t width, std::int64_t inner, std::int64_t layers) {
  constexpr std::int64_t kHead = 128;
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 256},
          {"hidden_size", width},
          {"intermediate_size", inner},
          {"num_hidden_layers", layers},
          {"num_attention_heads", width / kHead},
          {"num_key_value_heads", std::max<std::int64_t>(1, width / kHead / 4)},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", false},
          {"eos_token_id", nullptr},
          {"torch_dtype", "bfloat16"}};
}

core::Json by_input_config(std::int64_t width, std::int64_t layers) {
  constexpr std::int64_t kHead = 64;
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", 256},
          {"n_embd", width},
          {"n_layer", layers},
          {"n_head", width / kHead},
          {"n_positions", 64},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"torch_dtype", "bfloat16"}};
}

// With the machine's name: of others' processes nothing is known here.
std::string prefix() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("haul-models-{}-", host.data());
}

// What processes that were killed have left.
void remove_leftovers(const fs::path& folder) {
  const std::string own = prefix();
  std::error_code ignored;
  fs::directory_iterator entry(folder, ignored);
  for (; entry != fs::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(own)) continue;
    const int process = std::atoi(name.c_str() + own.size());
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH) {
      fs::remove_all(entry->path(), ignored);
    }
  }
}

fs::path fresh_folder(const fs::path& folder) {
  remove_leftovers(folder);
  return folder / fmt::format("{}{}", prefix(), ::getpid());
}

Plan plan_of(const Description& description, Device device, DeviceMap map) {
  PlanRequest request;
  request.memory = parse_max_memory(
      device.is_accelerator() ? fmt::format("{}=8GiB,cpu=16GiB", device.index) : "cpu=16GiB");
  request.context = kPrompt + kTokens;
  request.margins = true;
  request.options.no_split = description.no_split;
  request.given_map = std::move(map);
  Profile profile;
  profile.ram_bandwidth = 1;  // what lies in RAM for a GPU is not to be computed there
  return make_plan(description, request, profile);
}

// With a decoder's layers in RAM for the GPU.
Plan layers_in_ram(const Description& description, Device device) {
  return plan_of(description, device,
                 {{"model.embed_tokens", device},
                  {"model.layers", kCpuDevice},
                  {"model.norm", device},
                  {"model.rotary_emb", device},
                  {"lm_head", device}});
}

// Of a token.
double seconds_of(const fs::path& folder, const Plan& plan) {
  ModelOptions options;
  options.placement = plan;
  options.log = [](const std::string&) {};
  LoadedModel model = load_model(folder.string(), options);
  const auto on_gpu = [](const auto& entry) { return entry.second.is_accelerator(); };
  const std::vector<TokenId> prompt(kPrompt, 1);
  GenerateOptions tokens;
  tokens.temperature = 0;
  tokens.max_new_tokens = std::all_of(plan.map.begin(), plan.map.end(), on_gpu) ? kTokens
                          : on_gpu(plan.map.front())                            ? kTokensFromRam
                                                                                : kTokensOnCpu;
  model.generate(prompt, tokens);  // loads kernels
  std::array<double, 3> rounds{};
  for (double& seconds : rounds) {
    model.generate(prompt, tokens);
    seconds = 1 / model.figures().tokens_per_second();
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[1];
}

// seconds = bytes / bandwidth + calls * call, of two models.
struct Run {
  double bytes;
  double calls;
  double seconds;
};

ModelSpeed solve(const Run& large, const Run& small) {
  const double more = small.calls / large.calls;
  const double bytes = large.bytes * more - small.bytes;
  const double seconds = large.seconds * more - small.seconds;
  const double call = seconds > 0 ? small.seconds - small.bytes * seconds / bytes : 0;
  // So noisy a machine shows no difference: all by what is large.
  if (call <= 0) return {large.bytes / large.seconds, 0};
  return {bytes / seconds, call / small.calls};
}

}  // namespace

MeasuredModels::MeasuredModels(const fs::path& folder, bool large)
    : folder_(fresh_folder(folder)),
      // In RAM it is to be many times as large as caches, of which some CPUs have 300 MB.
      large_(decoder(folder_.path / "large", 4096, 14336, large ? 5 : 2)),
      small_(decoder(folder_.path / "small", 1024, 3584, large ? 24 : 12)),
      least_(decoder(folder_.path / "least", 256, 512, 1)),
      by_input_(by_input(folder_.path / "by_input", large ? 24 : 8)) {}

MeasuredModels::Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

MeasuredModels::Model MeasuredModels::make(const fs::path& folder, const core::Json& config,
                                           const std::string& layers, double calls) {
  RandomCheckpoint checkpoint = random_checkpoint(config, "a measured model");
  write_checkpoint(checkpoint, config, folder, [](Bytes, Bytes) {});
  const ModuleSizes sizes = compute_module_sizes(checkpoint.description);
  const double bytes = exact_bytes(sizes[*sizes.find(layers)].bits);
  return {folder, std::move(checkpoint.description), bytes, calls};
}

MeasuredModels::Model MeasuredModels::decoder(const fs::path& folder, std::int64_t width,
                                              std::int64_t inner, std::int64_t layers) {
  return make(folder, config_of(width, inner, layers), "model.layers",
              kCallsOfALayer * static_cast<double>(layers));
}

MeasuredModels::Model MeasuredModels::by_input(const fs::path& folder, std::int64_t layers) {
  return make(folder, by_input_config(kWidthByInput, layers), "transformer.h",
              (kCallsByInput + kCallsBeside) * static_cast<double>(layers));
}

ModelSpeed MeasuredModels::resident(Device device) const {
  const auto seconds = [&](const Model& model) {
    return seconds_of(model.folder, plan_of(model.description, device, {{"", device}}));
  };
  const double least = seconds(least_);
  const auto beyond = [&](const Model& model) {
    return Run{model.bytes - least_.bytes, model.calls - least_.calls,
               std::max(kLeastSeconds, seconds(model) - least)};
  };
  ModelSpeed speed = solve(beyond(large_), beyond(small_));
  const Run run = beyond(by_input_);
  const double more = run.seconds - run.bytes / speed.bandwidth - run.calls * speed.call;
  const double calls = by_input_.calls * kCallsByInput / (kCallsByInput + kCallsBeside);
  speed.by_input = std::max(0.0, more / calls);
  return speed;
}

// With so much for it to do that the link waits for it: what the CPU multiplies, and its waiting.
HelpSpeed MeasuredModels::from_the_cpu(const Plan& large, const Plan& small, double share) const {
  const auto run = [&](const Model& model, Plan plan) {
    plan.cpu_share = share;
    return Run{share * model.bytes, model.calls, seconds_of(model.folder, plan)};
  };
  const ModelSpeed speed = solve(run(large_, large), run(small_, small));
  return {speed.bandwidth, 0, speed.call};
}

std::optional<HelpSpeed> MeasuredModels::helped(double link) const {
  Plan large = layers_in_ram(large_.description, gpu(0));
  const Plan small = layers_in_ram(small_.description, gpu(0));
  try {
    HelpSpeed speed = from_the_cpu(large, small, 0.7);
    // The share with which both end together, as a plan has it. On either side of it one of them
    // decides, and the other is at work beside it.
    const double waited = large_.calls * speed.call * speed.bandwidth;
    const double together = (large_.bytes + waited) / (speed.bandwidth + link);
    const double middle = std::clamp(1 - together * link / large_.bytes, 0.1, 0.9);
    large.cpu_share = middle + 0.05;
    const double multiplied = seconds_of(large_.folder, large) - large_.calls * speed.call;
    const double together_with = large.cpu_share * large_.bytes / multiplied;
    // On a machine so noisy that this makes no sense the first figure stays.
    if (multiplied > 0 && together_with < 2 * speed.bandwidth) speed.bandwidth = together_with;
    large.cpu_share = middle - 0.07;
    speed.link =
        std::min(link, (1 - large.cpu_share) * large_.bytes / seconds_of(large_.folder, large));
    return speed;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    return std::nullopt;
  }
}

}  // namespace haul::runtime
