#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "cli/ids.h"
#include "cli/plan_view.h"
#include "cli/torch/interrupt.h"
#include "cli/torch/run_output.h"
#include "cli/torch/run_task.h"
#include "cli/verb.h"
#include "core/base/file.h"
#include "core/base/terminal.h"
#include "core/formats/safetensors_writer.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr Bytes kMaxPromptFile = 64 * kMiB;
constexpr Bytes kMaxPlanFile = 64 * kMiB;

struct Flags {
  std::string model;
  std::string prompt;
  std::string file;
  std::string ids;
  std::string system;
  std::string dtype;
  std::string device_map = "auto";
  std::optional<std::string> max_memory;
  std::string offload_folder;
  std::string plan;
  std::string logits;
  std::string task;
  std::vector<std::string> labels;
  std::optional<std::int64_t> context;
  std::int64_t batch = 1;
  int threads = 0;
  bool chat = false;
  bool raw = false;
  bool json = false;
  GenerateOptions generate;
};

ModelOptions model_options(const Flags& flags) {
  ModelOptions options;
  if (!flags.dtype.empty()) {
    const auto dtype = dtype_from_torch_name(flags.dtype);
    if (!dtype || !is_float(*dtype)) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a dtype to run in", flags.dtype),
                  "use float32, bfloat16 or float16");
    }
    options.dtype = *dtype;
  }
  if (!flags.plan.empty()) {
    options.placement = read_plan(core::read_file(flags.plan, kMaxPlanFile), flags.plan);
  } else if (flags.device_map.ends_with(".json")) {
    options.placement =
        read_device_map(core::read_file(flags.device_map, kMaxPlanFile), flags.device_map);
  } else {
    options.placement = parse_map_mode(flags.device_map);
  }
  if (flags.max_memory) options.max_memory = parse_max_memory(*flags.max_memory);
  options.offload_folder = flags.offload_folder;
  options.context = flags.context;
  options.batch = flags.batch;
  options.on_plan = [](const Plan& plan) {
    fmt::print(stderr, "{}\n", plan_view(plan, core::terminal_width()));
    for (const std::string& warning : plan.warnings) {
      fmt::print(stderr, "haul: warning: {}\n", warning);
    }
  };
  return options;
}

core::Json first_messages(const Flags& flags) {
  core::Json messages = core::Json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  return messages;
}

// Up to where the assistant begins to speak.
std::vector<TokenId> chat_ids(const Tokenizer& tokenizer, const core::Json& messages) {
  ChatOptions chat;
  chat.add_generation_prompt = true;
  return tokenizer.encode_ids(tokenizer.apply_chat(messages.dump(), chat), {false, false});
}

// The prompt as the model wants it: a turn of a chat where it has a template, else as it is.
std::vector<TokenId> prompt_ids(const LoadedModel& model, const std::string& prompt,
                                const Flags& flags) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (flags.raw || !tokenizer.chat_template()) {
    return tokenizer.encode_ids(prompt, {true, false});
  }
  core::Json messages = first_messages(flags);
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return chat_ids(tokenizer, messages);
}

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void answer(LoadedModel& model, const std::vector<TokenId>& prompt, const Flags& flags) {
  const LoadedModel::OnText on_text = flags.json ? LoadedModel::OnText() : show;
  const Generated generated = model.generate(prompt, flags.generate, on_text);
  if (flags.json) {
    fmt::print("{}\n", to_json(generated, model).dump());
  } else {
    show("\n");
  }
  fmt::print(stderr, "{}\n", figures_line(model));
}

// A conversation on the terminal, until the end of the input.
void converse(LoadedModel& model, const Flags& flags) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (!tokenizer.chat_template()) {
    throw Error(ErrorKind::kUnsupported, "the model has no chat template",
                "use --prompt, which continues a text");
  }
  core::Json messages = first_messages(flags);
  const bool asks = isatty(STDIN_FILENO) != 0;
  std::string line;
  for (;;) {
    catch_interrupt();
    if (asks) fmt::print(stderr, "{}", core::styled_stderr("> ", core::Style::kBold));
    if (asks && !wait_for_line()) break;
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    messages.push_back({{"role", "user"}, {"content", line}});
    const Generated generated = model.generate(chat_ids(tokenizer, messages), flags.generate, show);
    show("\n");
    messages.push_back({{"role", "assistant"}, {"content", generated.text}});
  }
  if (asks) fmt::print(stderr, "\n");
}

void write_logits(LoadedModel& model, const std::vector<TokenId>& ids, const std::string& file) {
  const at::Tensor logits = model.forward(std::span(ids)).contiguous();
  core::SafetensorsWriter writer(file, {{"logits", Dtype::kF32, logits.sizes().vec()}}, {});
  writer.write({static_cast<const std::byte*>(logits.const_data_ptr()), logits.nbytes()});
  writer.commit();
}

// The end of the last line of a file or a pipe is no part of the text.
std::string read_prompt(const Flags& flags) {
  if (!flags.prompt.empty()) return flags.prompt;
  std::string text = flags.file.empty() ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                        : core::read_file(flags.file, kMaxPromptFile);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

void check(const Flags& flags) {
  if (!flags.task.empty()) parse_task(flags.task);
  const int ways = !flags.prompt.empty() + flags.chat + !flags.file.empty() + !flags.ids.empty();
  if (ways > 1) throw Error(ErrorKind::kUsage, "give one of --prompt, --chat, --file and --ids");
  if (ways == 0 && isatty(STDIN_FILENO) != 0) {
    throw Error(ErrorKind::kUsage, "there is no prompt",
                "give --prompt TEXT, --chat, --file FILE or --ids 1,2,3, or pipe a text in");
  }
  if (!flags.logits.empty() && flags.ids.empty()) {
    throw Error(ErrorKind::kUsage, "--logits needs --ids");
  }
}

void run(Flags& flags) {
  check(flags);
  const std::vector<TokenId> ids =
      flags.ids.empty() ? std::vector<TokenId>() : parse_ids("--ids", flags.ids);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  LoadedModel model = load_model(flags.model, model_options(flags));
  flags.generate.cancel = &interrupted();
  if (!flags.logits.empty()) {
    write_logits(model, ids, flags.logits);
    return;
  }
  const Task task = flags.task.empty() ? model.task() : parse_task(flags.task);
  if (flags.chat) {
    converse(model, flags);
  } else if (task == Task::kGenerate) {
    const auto prompt = ids.empty() ? prompt_ids(model, read_prompt(flags), flags) : ids;
    catch_interrupt();
    answer(model, prompt, flags);
  } else {
    run_task(model, task,
             {ids.empty() ? read_prompt(flags) : std::string(), ids, flags.labels, flags.json});
  }
}

}  // namespace

void add_run(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand(
      "run", "Run a model: continue a prompt, chat, classify, embed, fill a mask");
  GenerateOptions& generate = flags->generate;
  verb->add_option("MODEL", flags->model, "a model's folder, GGUF file or hub name")->required();
  verb->add_option("--prompt", flags->prompt,
                   "what to say to the model; through its chat template where it has one");
  verb->add_flag("--chat", flags->chat, "a conversation, a line a turn");
  verb->add_option("--file", flags->file, "a file with the prompt");
  verb->add_option("--ids", flags->ids, "the prompt as token ids: 1,2,3");
  verb->add_option("--system", flags->system, "the system's words before a chat");
  verb->add_flag("--raw", flags->raw, "continue the prompt as it is, without the chat template");
  verb->add_option("--max-new-tokens", generate.max_new_tokens, "at most so many new tokens");
  verb->add_option("--temperature", generate.temperature, "0: always the likeliest token");
  verb->add_option("--top-k", generate.top_k, "of the likeliest so many");
  verb->add_option("--top-p", generate.top_p, "of the likeliest that make up this share");
  verb->add_option("--min-p", generate.min_p,
                   "of those at least this share as likely as the first");
  verb->add_option("--repetition-penalty", generate.repetition_penalty,
                   "makes what was said less likely; 1: not");
  verb->add_option("--stop", generate.stop, "a text that ends the answer; may be given again");
  verb->add_option("--seed", generate.seed, "of the random numbers")->capture_default_str();
  verb->add_option("--dtype", flags->dtype, "float32, bfloat16 or float16; default: as stored");
  verb->add_option("--device-map", flags->device_map,
                   "auto, balanced, balanced_low_0, sequential or a map's .json file")
      ->capture_default_str();
  verb->add_option("--max-memory", flags->max_memory,
                   "budgets like '0=10GiB,cpu=30GiB'; by default what the machine has free");
  verb->add_option("--offload-folder", flags->offload_folder,
                   "for weights on disk that no file holds as they are needed");
  verb->add_option("--plan", flags->plan, "a plan that `haul plan --save` wrote");
  verb->add_option("--context", flags->context, "tokens that a sequence may grow to");
  verb->add_option("--batch", flags->batch, "sequences at once")->capture_default_str();
  verb->add_option("--threads", flags->threads, "of the CPU; default: all");
  verb->add_option("--logits", flags->logits,
                   "write the logits of --ids to a safetensors file instead");
  verb->add_option("--task", flags->task,
                   "generate, embed, classify or fill-mask; default: what the model is for");
  verb->add_option("--labels", flags->labels, "names for the labels of a classification: A,B,C")
      ->delimiter(',');
  verb->add_flag("--json", flags->json, "print the answer as JSON");
  verb->footer(
      "Examples:\n"
      "  haul run HuggingFaceTB/SmolLM2-135M-Instruct --prompt 'What is the capital of France?'\n"
      "  haul run model.gguf --chat --system 'Be brief.'\n"
      "  haul run ./model --max-memory 'cpu=2GiB' --offload-folder /tmp/offload --prompt Hello\n"
      "  haul run sentence-transformers/all-MiniLM-L6-v2 --prompt 'A sentence.' --json\n"
      "  echo 'The capital of France is [MASK].' | haul run google-bert/bert-base-uncased");
  verb->callback([flags] {
    run(*flags);
    end_if_interrupted();
  });
}

}  // namespace haul::cli
