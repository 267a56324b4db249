#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "cli/ids.h"
#include "cli/plan_view.h"
#include "cli/torch/interrupt.h"
#include "cli/torch/run_processes.h"
#include "cli/torch/run_prompts.h"
#include "cli/torch/run_task.h"
#include "cli/verb.h"
#include "core/base/file.h"
#include "core/base/machine.h"
#include "core/base/terminal.h"
#include "core/formats/safetensors_writer.h"
#include "core/launch/rank_environment.h"
#include "haul/error.h"
#include "haul/torch/host_sharing.h"
#include "runtime/tiers/gpu.h"

namespace haul::cli {
namespace {

constexpr Bytes kMaxPlanFile = 64 * kMiB;

struct Flags {
  std::string model;
  std::string prompt;
  std::string file;
  std::string ids;
  std::string dtype;
  std::string device_map = "auto";
  std::optional<std::string> max_memory;
  std::string offload_folder;
  std::string plan;
  std::string logits;
  std::string task;
  std::vector<std::string> labels;
  std::optional<std::int64_t> context;
  int threads = 0;
  int num_processes = 1;
  int pipeline = 1;
  int tensor_parallel = 1;
  bool chat = false;
  bool lines = false;
  PromptOptions prompts;
};

// A GPU that the driver shows is not left out without a word.
void tell_unused_gpus(const Flags& flags, const Plan& plan) {
  const auto is_gpu = [](const Budget& item) { return item.device.is_accelerator(); };
  if (flags.max_memory || !flags.plan.empty() || flags.device_map.ends_with(".json")) return;
  if (std::any_of(plan.memory.begin(), plan.memory.end(), is_gpu)) return;
  const std::vector<core::GpuMemory> shown = core::read_machine(core::this_os()).gpus;
  if (shown.empty()) return;
  const std::string& name = shown.front().name;
  fmt::print(stderr, "haul: warning: {} is not used: {}\n", name.empty() ? "GPU 0" : name,
             runtime::built_for_gpus()
                 ? "CUDA finds none (its driver may be too old: 580 or newer is needed)"
                 : "haul was built without CUDA (`make build` has it where there is a GPU)");
}

ModelOptions model_options(const Flags& flags, const PartialState& state) {
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
  options.batch = flags.prompts.batch;
  options.num_beams = flags.prompts.generate.num_beams;
  options.sharing = share_host_weights(state);
  if (!state.is_main_process()) {
    options.log = [](const std::string&) {};
    return options;
  }
  options.on_plan = [&flags](const Plan& plan) {
    fmt::print(stderr, "{}\n", plan_view(plan, core::terminal_width()));
    tell_unused_gpus(flags, plan);
    for (const std::string& warning : plan.warnings) {
      fmt::print(stderr, "haul: warning: {}\n", warning);
    }
  };
  return options;
}

// A conversation on the terminal, until the end of the input.
void converse(LoadedModel& model, const Flags& flags) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (!tokenizer.chat_template()) {
    throw Error(ErrorKind::kUnsupported, "the model has no chat template",
                "use --prompt, which continues a text");
  }
  core::Json messages = first_messages(flags.prompts);
  const bool asks = isatty(STDIN_FILENO) != 0;
  std::string line;
  for (;;) {
    catch_interrupt();
    if (asks) fmt::print(stderr, "{}", core::styled_stderr("> ", core::Style::kBold));
    if (asks && !wait_for_line()) break;
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    messages.push_back({{"role", "user"}, {"content", line}});
    const Generated generated =
        model.generate(chat_ids(tokenizer, messages), flags.prompts.generate, show);
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

std::vector<Prompt> prompts_of(const Flags& flags, const PartialState& state) {
  if (flags.chat) return {};
  if (!flags.ids.empty()) return {{{}, nullptr, parse_ids("--ids", flags.ids), {}}};
  if (!flags.prompt.empty()) return {{flags.prompt, nullptr, {}, {}}};
  return read_prompts(state, flags.file, flags.lines);
}

void check(const Flags& flags) {
  if (!flags.task.empty()) parse_task(flags.task);
  const int ways = !flags.prompt.empty() + flags.chat + !flags.file.empty() + !flags.ids.empty();
  if (ways > 1) throw Error(ErrorKind::kUsage, "give one of --prompt, --chat, --file and --ids");
  if (ways == 0 && isatty(STDIN_FILENO) != 0) {
    throw Error(ErrorKind::kUsage, "there is no prompt",
                "give --prompt TEXT, --chat, --file FILE or --ids 1,2,3, or pipe a text in");
  }
  if (flags.lines && ways > 0 && flags.file.empty()) {
    throw Error(ErrorKind::kUsage, "--lines is for --file, or for a pipe");
  }
  if (flags.prompts.batch < 1) throw Error(ErrorKind::kUsage, "--batch is below 1");
  if (!flags.logits.empty() && flags.ids.empty()) {
    throw Error(ErrorKind::kUsage, "--logits needs --ids");
  }
}

// Processes that have a part of the model each, by stages or by layers.
void check_parts(const Flags& flags, int processes) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::kUsage, why); };
  const bool stages = flags.pipeline > 1;
  const char* const flag = stages ? "--pipeline" : "--tensor-parallel";
  if (stages && flags.tensor_parallel > 1) {
    refuse("--pipeline and --tensor-parallel exclude each other");
  }
  if (flags.num_processes > 1) {
    refuse(fmt::format("{} and --num-processes exclude each other", flag));
  }
  const int parts = stages ? flags.pipeline : flags.tensor_parallel;
  if (processes != parts) refuse(fmt::format("{} {} and {} processes", flag, parts, processes));
  if (flags.chat || !flags.ids.empty() || (!flags.task.empty() && flags.task != "generate")) {
    refuse(fmt::format("{} is for prompts that are continued", flag));
  }
}

// Processes that were launched need prompts to share.
void check_processes(const Flags& flags, int processes) {
  if (flags.pipeline > 1 || flags.tensor_parallel > 1) {
    check_parts(flags, processes);
    return;
  }
  if (processes == 1 || (flags.prompt.empty() && flags.ids.empty() && !flags.chat)) return;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("{} processes share the prompts of a file, and there is one prompt", processes),
      "give --file FILE with --lines, or a .jsonl file, or one process");
}

void run(Flags& flags, char** argv) {
  check(flags);
  const core::RankEnvironment launched = core::read_rank_environment();
  const bool alone = launched.source == core::RankSource::kAlone;
  const int wanted = std::max({flags.num_processes, flags.pipeline, flags.tensor_parallel});
  check_processes(flags, alone ? wanted : launched.world);
  if (alone && wanted > 1) {
    if (!flags.file.empty()) read_prompts(flags.file, flags.lines);  // says once what is wrong
    run_in_processes(wanted, argv);
  }
  // Words pass between the processes, not tensors: no GPU is needed for that.
  const PartialState state({true});
  const std::vector<Prompt> prompts = prompts_of(flags, state);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  flags.prompts.generate.cancel = &interrupted();
  if (flags.pipeline > 1 || flags.tensor_parallel > 1) {
    ModelOptions options = model_options(flags, state);
    options.sharing = nullptr;  // they have no weights in common
    if (flags.pipeline > 1) {
      PipelinedModel model(flags.model, options);
      catch_interrupt();
      answer(model, prompts, flags.prompts, state);
    } else {
      TensorParallelModel model(flags.model, options);
      catch_interrupt();
      answer(model, prompts, flags.prompts, state);
    }
    return;
  }
  LoadedModel model = load_model(flags.model, model_options(flags, state));
  if (!flags.logits.empty()) {
    write_logits(model, prompts.front().ids, flags.logits);
    return;
  }
  const Task task = flags.task.empty() ? model.task() : parse_task(flags.task);
  if (flags.chat) {
    converse(model, flags);
  } else if (task != Task::kGenerate) {
    run_task(model, task, {prompts, flags.labels, flags.prompts.json}, state);
  } else {
    catch_interrupt();
    answer(model, prompts, flags.prompts, state);
  }
}

}  // namespace

void add_run(CLI::App& app, char** argv) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand(
      "run", "Run a model: continue a prompt, chat, classify, embed, fill a mask");
  PromptOptions& prompts = flags->prompts;
  GenerateOptions& generate = prompts.generate;
  verb->add_option("MODEL", flags->model, "a model's folder, GGUF file or hub name")->required();
  verb->add_option("--prompt", flags->prompt,
                   "what to say to the model; through its chat template where it has one");
  verb->add_flag("--chat", flags->chat, "a conversation, a line a turn");
  verb->add_option("--file", flags->file,
                   "a file with the prompt; one that ends in .jsonl has a prompt a line: a JSON "
                   "string, {\"prompt\": TEXT}, {\"messages\": [...]} or {\"ids\": [1, 2, 3]}");
  verb->add_flag("--lines", flags->lines, "each line of --file or of a pipe is a prompt");
  verb->add_option("--ids", flags->ids, "the prompt as token ids: 1,2,3");
  verb->add_option("--system", prompts.system, "the system's words before a chat");
  verb->add_flag("--raw", prompts.raw, "continue the prompt as it is, without the chat template");
  verb->add_option("--max-new-tokens", generate.max_new_tokens, "at most so many new tokens");
  verb->add_option("--temperature", generate.temperature, "0: always the likeliest token");
  verb->add_option("--top-k", generate.top_k, "of the likeliest so many");
  verb->add_option("--top-p", generate.top_p, "of the likeliest that make up this share");
  verb->add_option("--min-p", generate.min_p,
                   "of those at least this share as likely as the first");
  verb->add_option("--repetition-penalty", generate.repetition_penalty,
                   "makes what was said less likely; 1: not");
  verb->add_option("--num-beams", generate.num_beams,
                   "above 1: the best of so many continuations as a whole; default: as the model's "
                   "generation_config.json says");
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
  verb->add_option("--batch", prompts.batch, "so many of the prompts of a file at once")
      ->capture_default_str();
  verb->add_option("--threads", flags->threads, "of the CPU; default: all");
  verb->add_option("--num-processes", flags->num_processes,
                   "so many processes share the prompts of a file")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--pipeline", flags->pipeline,
                   "so many processes have a stage of the model each")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--tensor-parallel", flags->tensor_parallel,
                   "so many processes have a part of every layer each")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--logits", flags->logits,
                   "write the logits of --ids to a safetensors file instead");
  verb->add_option("--task", flags->task,
                   "generate, embed, classify or fill-mask; default: what the model is for");
  verb->add_option("--labels", flags->labels, "names for the labels of a classification: A,B,C")
      ->delimiter(',');
  verb->add_flag("--json", prompts.json, "print the answer as JSON, one object a line");
  verb->footer(
      "Examples:\n"
      "  haul run HuggingFaceTB/SmolLM2-135M-Instruct --prompt 'What is the capital of France?'\n"
      "  haul run model.gguf --chat --system 'Be brief.'\n"
      "  haul run ./model --max-memory 'cpu=2GiB' --offload-folder /tmp/offload --prompt Hello\n"
      "  haul run model.gguf --file questions.jsonl --batch 8 --json > answers.jsonl\n"
      "  haul run ./model --file sentences.txt --lines --num-processes 4\n"
      "  haul run ./model --prompt Hello --tensor-parallel 2\n"
      "  haul run sentence-transformers/all-MiniLM-L6-v2 --prompt 'A sentence.' --json\n"
      "  echo 'The capital of France is [MASK].' | haul run google-bert/bert-base-uncased");
  verb->callback([flags, argv] {
    run(*flags, argv);
    end_if_interrupted();
  });
}

}  // namespace haul::cli
