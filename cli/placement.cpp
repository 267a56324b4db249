#include "cli/placement.h"

#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/model.h"
#include "core/base/file.h"
#include "core/base/machine.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr Bytes kMaxTreeFile = 1 * kGiB;
constexpr Bytes kMaxMapFile = 64 * kMiB;
// Of the RAM that is available, haul's planner leaves this share to everything else.
constexpr Bytes kRamPart = 10;

int dtype_bits(std::string_view text) {
  const auto bits = counted_bits(text);
  if (!bits) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a dtype", text),
                "use torch's names (float32, float16, bfloat16, int8, …), int4, int2 or fp8");
  }
  return *bits;
}

Description describe(const PlacementFlags& flags) {
  if (flags.tree.empty() == flags.model.empty()) {
    throw Error(ErrorKind::kUsage, "give a MODEL or --tree FILE");
  }
  if (!flags.tree.empty()) return read_tree(core::read_file(flags.tree, kMaxTreeFile), flags.tree);
  DescribedModel model = describe_model(flags.model, {false, core::WeightDtype::kStored});
  for (const std::string& note : model.described.notes) fmt::print(stderr, "note: {}\n", note);
  return std::move(model.described.description);
}

MapOptions map_options(const PlacementFlags& flags, const Description& description) {
  MapOptions options;
  if (!flags.dtype.empty()) options.sizes.dtype_bits = dtype_bits(flags.dtype);
  for (const std::string& text : flags.special_dtypes) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos) {
      throw Error(ErrorKind::kUsage, fmt::format("special dtype '{}' is not NAME=DTYPE", text));
    }
    options.sizes.special_bits[text.substr(0, equals)] = dtype_bits(text.substr(equals + 1));
  }
  options.no_split = flags.no_split.empty() ? description.no_split : flags.no_split;
  options.clean_result = !flags.no_clean;
  options.offload_buffers = flags.offload_buffers;
  options.fallback_allocation = flags.fallback_allocation;
  return options;
}

// Of KV cache and activations: the one asked for, else that of most weights.
Dtype run_dtype(const PlacementFlags& flags, const Description& description) {
  const auto dtype = dtype_from_torch_name(flags.dtype);
  return dtype && is_float(*dtype) ? *dtype : main_dtype(description);
}

MaxMemory machine_memory(Planner planner) {
  const core::Machine machine = core::read_machine(core::this_os());
  std::vector<Budget> budgets;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    budgets.push_back(budget(gpu(static_cast<int>(i)), machine.gpus[i].free));
  }
  const Bytes kept = planner == Planner::kHaul ? machine.ram / kRamPart : 0;
  budgets.push_back(budget(kCpuDevice, machine.ram - kept));
  return get_max_memory(std::move(budgets));
}

MaxMemory budgets_of(const PlacementFlags& flags, Planner planner) {
  MaxMemory memory =
      flags.max_memory ? parse_max_memory(*flags.max_memory) : machine_memory(planner);
  if (!flags.offload_folder.empty() && !budget_of(memory, kDiskDevice) &&
      planner == Planner::kHaul) {
    memory.push_back(budget(kDiskDevice, core::free_disk(flags.offload_folder)));
  }
  for (const Budget& kept : parse_max_memory(flags.keep_free)) {
    for (Budget& item : memory) {
      if (item.device == kept.device) item.bits -= std::min(item.bits, kept.bits);
    }
  }
  return memory;
}

DeviceMap given_map(const PlacementFlags& flags, const Description& description,
                    std::vector<std::string>* warnings) {
  DeviceMap map = read_device_map(core::read_file(flags.device_map, kMaxMapFile), flags.device_map);
  const DeviceMapCheck check = check_device_map(description, map);
  if (!check.covers_everything()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: the map gives no device for {}", flags.device_map,
                            fmt::join(check.uncovered, ", ")),
                "add an entry for each, for a module above them, or \"\" for the whole model");
  }
  if (!check.unknown_keys.empty()) {
    warnings->push_back(fmt::format("the map has entries that name no module: {}",
                                    fmt::join(check.unknown_keys, ", ")));
  }
  for (const auto& group : check.split_ties) {
    warnings->push_back(
        fmt::format("one tensor lies on several devices: {}", fmt::join(group, ", ")));
  }
  return map;
}

std::int64_t token_count(std::string_view text) {
  std::int64_t count = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (code != std::errc{} || stop != text.data() + text.size() || count < 1) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a context", text),
                "give a number of tokens, auto, or auto:MINIMUM");
  }
  return count;
}

void set_context(const PlacementFlags& flags, const Description& description,
                 const Profile& profile, PlanRequest* request) {
  constexpr std::int64_t kLongest = 1'048'576;
  if (flags.context.empty()) return;
  if (!flags.context.starts_with("auto")) {
    request->context = token_count(flags.context);
    return;
  }
  std::int64_t minimum = 1;
  if (flags.context != "auto") {
    if (!flags.context.starts_with("auto:")) token_count(flags.context);
    minimum = token_count(std::string_view(flags.context).substr(5));
  }
  const bool limited = description.dimensions && description.dimensions->max_positions > 0;
  const std::int64_t most = limited ? description.dimensions->max_positions : kLongest;
  if (minimum > most) {
    throw Error(ErrorKind::kUsage, fmt::format("the model has no more than {} positions", most));
  }
  request->context = longest_context(description, *request, profile, minimum, most);
  if (!request->context) {
    request->context = minimum;
    Bytes away = 0;
    for (const PlanStep& step : haul::make_plan(description, *request, profile).steps) {
      if (step.lies != step.runs_on || !step.lies.is_accelerator()) away += step.weights;
    }
    fmt::print(stderr, "note: a context of {} needs offload: {} of weights do not fit\n", minimum,
               format_bytes(away));
  }
}

}  // namespace

void add_placement_flags(CLI::App& verb, PlacementFlags* flags) {
  verb.add_option("MODEL", flags->model, "a model's folder, config.json, checkpoint or hub name");
  verb.add_option("--tree", flags->tree, "a module tree file instead of a model");
  verb.add_option("--device-map", flags->device_map,
                  "auto, balanced, balanced_low_0, sequential or a map's .json file")
      ->capture_default_str();
  verb.add_option("--max-memory", flags->max_memory,
                  "budgets like '0=10GiB,cpu=30GiB', or a JSON object; by default what the "
                  "machine has free");
  verb.add_option("--planner", flags->planner, "haul or accelerate")
      ->check(CLI::IsMember({"haul", "accelerate"}))
      ->capture_default_str();
  verb.add_option("--no-split", flags->no_split, "classes that stay whole")->delimiter(',');
  verb.add_option("--dtype", flags->dtype, "the dtype that floating weights are converted to");
  verb.add_option("--special-dtypes", flags->special_dtypes, "NAME=DTYPE for single tensors")
      ->delimiter(',');
  verb.add_flag("--offload-buffers", flags->offload_buffers, "offload buffers with their modules");
  verb.add_flag("--fallback-allocation", flags->fallback_allocation,
                "look for a smaller module when an empty device cannot hold the next one");
  verb.add_flag("--no-clean", flags->no_clean, "leave the map's entries ungrouped");
  verb.add_option("--context", flags->context,
                  "tokens of a sequence: counts KV cache and activations; auto takes the longest "
                  "that needs no offload, auto:MIN not less than MIN");
  verb.add_option("--batch", flags->batch, "sequences at once")->capture_default_str();
  verb.add_option("--free", flags->keep_free, "keep this much of a device free: '0=1GiB'");
  verb.add_option("--offload-folder", flags->offload_folder,
                  "where weights that lie on disk are put; its free space is the disk's budget");
}

Plan make_plan(const PlacementFlags& flags, const Profile& profile) {
  const Description description = describe(flags);
  PlanRequest request;
  request.model = flags.tree.empty() ? flags.model : flags.tree;
  request.planner = flags.planner == "haul" ? Planner::kHaul : Planner::kAccelerate;
  request.options = map_options(flags, description);
  request.memory_from_machine = !flags.max_memory.has_value();
  request.memory = budgets_of(flags, request.planner);
  request.batch = flags.batch;
  request.dtype = run_dtype(flags, description);
  std::vector<std::string> warnings;
  if (flags.device_map.ends_with(".json")) {
    request.given_map = given_map(flags, description, &warnings);
  } else {
    request.mode = parse_map_mode(flags.device_map);
  }
  request.margins = !flags.context.empty();  // then it is a run that is planned
  set_context(flags, description, profile, &request);
  Plan plan = haul::make_plan(description, request, profile);
  plan.warnings.insert(plan.warnings.begin(), warnings.begin(), warnings.end());
  return plan;
}

}  // namespace haul::cli
