#include "cli/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/model.h"
#include "core/base/file.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr Bytes kMaxTreeFile = 1 * kGiB;
constexpr Bytes kMaxMapFile = 64 * kMiB;

int dtype_bits(std::string_view text) {
  const auto bits = counted_bits(text);
  if (!bits) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a dtype", text),
                "use torch's names (float32, float16, bfloat16, int8, …), int4, int2 or fp8");
  }
  return *bits;
}

void fill_rows(const Description& description, const SizeOptions& sizes,
               const std::vector<Budget>& reserves, MapReport* report) {
  for (const Budget& item : report->memory) {
    report->devices.push_back({item.device, item.bits, 0, 0});
  }
  const auto row_of = [&](Device device) -> DeviceRow& {
    for (DeviceRow& row : report->devices) {
      if (row.device == device) return row;
    }
    report->devices.push_back({device, std::nullopt, 0, 0});
    return report->devices.back();
  };
  for (const DeviceUse& use : weights_by_device(description, sizes, report->map)) {
    row_of(use.device).weights = use.bits;
  }
  for (const Budget& item : reserves) row_of(item.device).reserve = item.bits;
}

MapReport checked_file(const PlacementFlags& flags, const Description& description,
                       const MapOptions& options, MaxMemory memory) {
  MapReport report;
  report.memory = std::move(memory);
  report.map = read_device_map(core::read_file(flags.device_map, kMaxMapFile), flags.device_map);
  const DeviceMapCheck check = check_device_map(description, report.map);
  if (!check.covers_everything()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: the map gives no device for {}", flags.device_map,
                            fmt::join(check.uncovered, ", ")),
                "add an entry for each, for a module above them, or \"\" for the whole model");
  }
  if (!check.unknown_keys.empty()) {
    report.warnings.push_back(fmt::format("the map has entries that name no module: {}",
                                          fmt::join(check.unknown_keys, ", ")));
  }
  for (const auto& group : check.split_ties) {
    report.warnings.push_back(
        fmt::format("one tensor lies on several devices: {}", fmt::join(group, ", ")));
  }
  fill_rows(description, options.sizes, {}, &report);
  return report;
}

MapReport peer_map(const Description& description, const MapOptions& options, MapMode mode,
                   MaxMemory memory, bool from_machine) {
  MapReport report;
  report.memory = std::move(memory);
  if (mode != MapMode::kSequential) {
    BalancedMemory balanced = get_balanced_memory(description, report.memory, options,
                                                  {mode == MapMode::kBalancedLow0, from_machine});
    report.memory = std::move(balanced.memory);
    report.peer_failure = std::move(balanced.peer_failure);
  }
  InferredMap inferred = infer_auto_device_map(description, report.memory, options);
  if (report.peer_failure.empty()) report.peer_failure = inferred.peer_failure;
  report.map = std::move(inferred.map);
  report.warnings = std::move(inferred.warnings);
  for (const Budget& item : inferred.minimum_needed) {
    const Bits have = budget_of(report.memory, item.device).value_or(0);
    report.shortfall.push_back({item.device, item.bits > have ? item.bits - have : 0});
    report.warnings.push_back(fmt::format("nothing fits on device {}: {} bytes required",
                                          to_string(item.device), exact_bytes(item.bits)));
  }
  fill_rows(description, options.sizes, inferred.reserves, &report);
  return report;
}

}  // namespace

void add_placement_flags(CLI::App& verb, PlacementFlags* flags) {
  verb.add_option("MODEL", flags->model, "a model's folder, config.json, checkpoint or hub name");
  verb.add_option("--tree", flags->tree, "a module tree file instead of a model");
  verb.add_option("--device-map", flags->device_map,
                  "auto, balanced, balanced_low_0, sequential or a map's .json file")
      ->capture_default_str();
  verb.add_option_function<std::string>(
      "--max-memory",
      [flags](const std::string& text) {
        flags->max_memory = text;
        flags->max_memory_given = true;
      },
      "budgets like '0=10GiB,cpu=30GiB', or a JSON object; by default what the machine has free");
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
}

Description load_description(const PlacementFlags& flags) {
  if (flags.tree.empty() == flags.model.empty()) {
    throw Error(ErrorKind::kUsage, "give a MODEL or --tree FILE");
  }
  if (!flags.tree.empty()) return read_tree(core::read_file(flags.tree, kMaxTreeFile), flags.tree);
  DescribedModel model = describe_model(flags.model, {false, core::WeightDtype::kStored});
  for (const std::string& note : model.notes) fmt::print(stderr, "note: {}\n", note);
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

MapReport make_map(const PlacementFlags& flags) {
  const Description description = load_description(flags);
  const MapOptions options = map_options(flags, description);
  MaxMemory memory = parse_max_memory(flags.max_memory);
  if (flags.device_map.ends_with(".json")) {
    return checked_file(flags, description, options, std::move(memory));
  }
  const MapMode mode = parse_map_mode(flags.device_map);
  return peer_map(description, options, mode, std::move(memory), !flags.max_memory_given);
}

}  // namespace haul::cli
