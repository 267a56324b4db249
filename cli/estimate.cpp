#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/estimate_report.h"
#include "cli/model.h"
#include "cli/verb.h"
#include "core/describe/stored_tensors.h"
#include "core/formats/checkpoint.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr std::int64_t kDefaultContext = 4096;
constexpr std::int64_t kDefaultSequence = 1024;

struct Flags {
  std::string model;
  std::string library;
  bool base_model = false;
  std::vector<std::string> dtypes{"float32", "float16", "int8", "int4"};
  std::int64_t context = 0;   // 0: not given
  std::int64_t sequence = 0;  // 0: not given
  std::int64_t batch = 1;
  std::string train;
  std::string optimizer = "adamw";
  std::string precision;
  bool recompute = false;
  std::int64_t lora_rank = 8;
  std::string fit;
  bool json = false;
};

template <typename Value, std::size_t count>
using Choices = std::array<std::pair<std::string_view, Value>, count>;

constexpr Choices<TrainMode, 2> kModes{{{"full", TrainMode::kFull}, {"lora", TrainMode::kLora}}};
constexpr Choices<Optimizer, 4> kOptimizers{{{"adamw", Optimizer::kAdamW},
                                             {"adam8bit", Optimizer::kAdam8Bit},
                                             {"adafactor", Optimizer::kAdafactor},
                                             {"sgd", Optimizer::kSgd}}};
constexpr Choices<Precision, 3> kPrecisions{
    {{"fp32", Precision::kFp32}, {"bf16", Precision::kBf16}, {"fp16", Precision::kFp16}}};

template <typename Value, std::size_t count>
Value choose(const Choices<Value, count>& choices, std::string_view flag, std::string_view text) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  throw Error(ErrorKind::kUsage, fmt::format("{}: '{}' is not known", flag, text),
              "write one of: " + names);
}

std::vector<RowDtype> row_dtypes(const Flags& flags) {
  std::vector<RowDtype> result;
  for (const std::string& text : flags.dtypes) {
    const auto dtype = row_dtype_from_name(text);
    if (!dtype) {
      std::string names;
      for (const RowDtype known : kRowDtypes) {
        names += fmt::format("{}{}", names.empty() ? "" : ", ", name(known));
      }
      throw Error(ErrorKind::kUsage, fmt::format("--dtypes: '{}' is not known", text),
                  "write one or more of: " + names);
    }
    result.push_back(*dtype);
  }
  return result;
}

// A timm architecture needs no files: its name says all.
bool is_timm_name(const Flags& flags) {
  return flags.library == "timm" && flags.model.find('/') == std::string::npos &&
         !std::filesystem::exists(flags.model);
}

DescribedModel find_model(const Flags& flags) {
  core::DescribeOptions options;
  options.base_model = flags.base_model;
  options.dtype = core::WeightDtype::kStored;
  if (!is_timm_name(flags)) return describe_model(flags.model, options);
  DescribedModel result;
  const std::string architecture = flags.model.substr(0, flags.model.find('.'));
  result.described.description =
      core::describe_config({{"architecture", architecture}}, flags.model, options);
  return result;
}

void check_library(const Flags& flags, const core::ModelFiles& files) {
  if (flags.library.empty() || files.library.empty() || flags.library == files.library) return;
  throw Error(ErrorKind::kUsage, fmt::format("{}: its config is of {}, not of {}", flags.model,
                                             files.library, flags.library));
}

// The dtype that most of the weights are stored in.
Dtype stored_dtype(const Description& description) {
  std::array<std::uint64_t, kDtypeCount> counts{};
  for (const NamedTensor& tensor : all_tensors(description)) {
    if (is_float(tensor.dtype) && bits(tensor.dtype) >= 16) {
      counts[static_cast<std::size_t>(tensor.dtype)] += element_count(tensor.shape);
    }
  }
  const auto* most = std::max_element(counts.begin(), counts.end());
  return *most == 0 ? Dtype::kF32 : static_cast<Dtype>(most - counts.begin());
}

Dtype dtype_of(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return Dtype::kF32;
    case Precision::kBf16:
      return Dtype::kBF16;
    case Precision::kFp16:
      return Dtype::kF16;
  }
  return Dtype::kF32;
}

std::int64_t tokens(const Flags& flags, std::int64_t given, std::int64_t usual,
                    const Description& description, EstimateReport* report) {
  const std::int64_t most = description.dimensions ? description.dimensions->max_positions : 0;
  if (given == 0) return most > 0 ? std::min(usual, most) : usual;
  if (most > 0 && given > most) {
    report->notes.push_back(fmt::format("{} was made for at most {} tokens", flags.model, most));
  }
  return given;
}

void fill_inference(const Flags& flags, const Description& stored, bool quantised_file,
                    EstimateReport* report) {
  InferenceRequest request;
  request.dtype = quantised_file ? Dtype::kBF16 : stored_dtype(stored);
  if (!flags.precision.empty()) {
    request.dtype = dtype_of(choose(kPrecisions, "--precision", flags.precision));
  }
  request.batch = flags.batch;
  request.context = tokens(flags, flags.context, kDefaultContext, stored, report);
  report->table = inference_table(stored, request);
  report->run = fmt::format("inference in {}, batch {}", torch_name(request.dtype), request.batch);
  if (stored.dimensions) report->run += fmt::format(", {} tokens", request.context);
}

void fill_training(const Flags& flags, const Description& description, EstimateReport* report) {
  TrainingRequest request;
  request.mode = choose(kModes, "--train", flags.train);
  request.optimizer = choose(kOptimizers, "--optimizer", flags.optimizer);
  if (!flags.precision.empty()) {
    request.precision = choose(kPrecisions, "--precision", flags.precision);
  }
  request.batch = flags.batch;
  request.sequence = tokens(flags, flags.sequence, kDefaultSequence, description, report);
  request.recompute = flags.recompute;
  request.lora_rank = flags.lora_rank;
  report->table = training_table(description, request);
  report->run = fmt::format("{} training with {} in {}, batch {}", flags.train, flags.optimizer,
                            torch_name(dtype_of(request.precision)), request.batch);
  if (description.dimensions) report->run += fmt::format(", {} tokens", request.sequence);
  if (request.mode == TrainMode::kLora) {
    report->run += fmt::format(", rank {} ({} parameters)", request.lora_rank,
                               lora_parameter_count(description, request.lora_rank));
  }
  if (request.recompute) report->run += ", with recompute";
}

Bytes memory_size(const std::string& text) {
  try {
    return parse_bytes(text);
  } catch (const Error&) {
    std::string names;
    for (const Gpu& gpu : known_gpus()) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", gpu.name);
    }
    throw Error(ErrorKind::kUsage,
                fmt::format("--fit: '{}' is neither a size nor a GPU that haul knows", text),
                "write a size like 24GiB, or one of: " + names);
  }
}

void fill_fit(const Flags& flags, const Description& description, EstimateReport* report) {
  const double share = largest_layer_share(description);
  const auto judged = [&](std::string_view name, Bytes memory, Bytes budget) {
    return NamedVerdict{std::string(name), memory, judge(report->table, share, budget)};
  };
  if (flags.fit.empty()) {
    for (const Gpu& gpu : known_gpus()) {
      report->gpus.push_back(judged(gpu.name, gpu.memory, gpu.memory - gpu.reserved));
    }
    return;
  }
  if (const Gpu* gpu = find_gpu(flags.fit)) {
    report->fit = judged(gpu->name, gpu->memory, gpu->memory - gpu->reserved);
    return;
  }
  const Bytes size = memory_size(flags.fit);
  report->fit = judged(flags.fit, size, size);
}

// Whether the weights lie here in a file that a run must expand.
bool fill_file(const core::ModelFiles& files, EstimateReport* report) {
  if (!files.checkpoint.empty()) {
    const core::Checkpoint checkpoint = core::Checkpoint::open(files.checkpoint);
    report->file_bytes = checkpoint.stored_bytes();
    return checkpoint.format() == core::CheckpointFormat::kGguf;
  }
  if (!files.remote_tensors.empty()) {
    Bytes sum = 0;
    for (const core::HeaderTensor& tensor : files.remote_tensors) {
      sum += byte_count(tensor.dtype, tensor.shape);
    }
    report->file_bytes = sum;
  }
  return false;
}

EstimateReport estimate(const Flags& flags) {
  const std::vector<RowDtype> dtypes = row_dtypes(flags);
  DescribedModel model = find_model(flags);
  check_library(flags, model.files);
  const Description& stored = model.described.description;
  Description description = stored;  // as the peer counts it, in float32
  core::set_dtype(Dtype::kF32, &description.root);

  EstimateReport report;
  report.model = flags.model;
  report.architecture = description.architecture;
  report.from_config = model.described.from == core::DescribedFrom::kConfig;
  report.notes = model.described.notes;
  report.parameters = parameter_count(description);
  report.sizes = calculate_maximum_sizes(description);
  for (const RowDtype dtype : dtypes) {
    report.rows.push_back(peer_row(report.sizes, dtype));
    report.true_rows.push_back(true_row(description, dtype));
  }
  const bool quantised_file = fill_file(model.files, &report);
  if (flags.train.empty()) {
    fill_inference(flags, stored, quantised_file, &report);
  } else {
    fill_training(flags, description, &report);
  }
  if (!stored.dimensions) {
    report.notes.push_back(
        "haul does not know this architecture's dimensions: activations are not in the table");
  }
  fill_fit(flags, description, &report);
  return report;
}

constexpr const char* kExamples =
    "Examples:\n"
    "  haul estimate bert-base-cased --base-model\n"
    "  haul estimate meta-llama/Llama-3.1-8B --context 8192 --batch 4 --fit \"RTX 4090\"\n"
    "  haul estimate ./my-model --train lora --lora-rank 16 --seq 2048 --recompute --fit 24GiB\n"
    "  haul estimate model.gguf --precision fp16 --json\n";

}  // namespace

void add_estimate(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("estimate", "Tell what memory a model needs");
  verb->alias("estimate-memory");
  verb->footer(kExamples);
  verb->add_option("MODEL", flags->model,
                   "a folder, a config.json, a checkpoint, a module tree file or a hub name")
      ->required();
  verb->add_flag("--base-model", flags->base_model,
                 "the bare model, without the head that its config names");
  verb->add_option("--library-name", flags->library, "transformers or timm")
      ->check(CLI::IsMember({"transformers", "timm"}));
  verb->add_option("--dtypes", flags->dtypes,
                   "rows of the table: float32 float16 bfloat16 fp8 int8 int4")
      ->delimiter(',');
  CLI::Option* context =
      verb->add_option("--context", flags->context, "tokens, prompt and answer together")
          ->check(CLI::PositiveNumber);
  verb->add_option("--batch", flags->batch, "sequences at once")->check(CLI::PositiveNumber);
  verb->add_option("--precision", flags->precision,
                   "fp32, bf16 or fp16; for inference by default what the weights are stored in, "
                   "for training bf16");
  CLI::Option* train =
      verb->add_option("--train", flags->train, "full or lora: what training needs")
          ->excludes(context);
  verb->add_option("--optimizer", flags->optimizer, "adamw, adam8bit, adafactor or sgd")
      ->needs(train);
  verb->add_option("--seq", flags->sequence, "tokens of a training sequence")
      ->check(CLI::PositiveNumber)
      ->needs(train);
  verb->add_flag("--recompute", flags->recompute, "keep only each layer's input for backward")
      ->needs(train);
  verb->add_option("--lora-rank", flags->lora_rank, "rank of the adapters, by default 8")
      ->check(CLI::PositiveNumber)
      ->needs(train);
  verb->add_option("--fit", flags->fit, "a size (24GiB) or a GPU (\"RTX 4090\") to judge by");
  verb->add_flag("--json", flags->json, "print one JSON object");
  verb->callback([flags] {
    const EstimateReport report = estimate(*flags);
    fmt::print("{}\n", flags->json ? estimate_json(report) : estimate_text(report));
  });
}

}  // namespace haul::cli
