#include "haul/plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/place/best.h"
#include "core/place/construct.h"
#include "core/place/model_world.h"
#include "core/place/peer_planner.h"
#include "core/place/place_model.h"
#include "core/place/plan_devices.h"
#include "core/place/shortfall.h"
#include "core/place/workload.h"
#include "haul/estimate.h"

namespace haul {
namespace {

using core::apart;
using core::Choice;
using core::Choices;
using core::Executor;
using core::Held;
using core::ModelWorld;
using core::NamePlaces;
using core::place_model;
using core::Placed;
using core::plan_workload;
using core::prompt_workload;
using core::Store;
using core::Timing;
using core::with_kv_in_ram;
using core::Workload;
using core::World;

std::string limit_of(const World& world, const Timing& timing) {
  const double slack = 1e-9 * timing.seconds;
  for (std::size_t e = 0; e < timing.link.size(); ++e) {
    if (timing.link[e] > 0 && timing.link[e] >= timing.seconds - slack) {
      return fmt::format("link of GPU {}", to_string(world.executors[e].device));
    }
  }
  if (timing.disk > 0 && timing.disk >= timing.seconds - slack) return "disk";
  return "compute and memory";
}

// What of the chain weighs most.
std::string chain_limit(const World& world, const Choices& choices) {
  double bytes_time = 0;
  double work_time = 0;
  double cpu_time = 0;
  for (std::size_t u = 0; u < choices.size();) {
    const std::size_t first = u;
    const core::Unit& unit = world.units[first];
    do {
      ++u;
    } while (u < choices.size() && choices[u].executor == choices[first].executor &&
             world.units[u].touched == unit.touched &&
             world.units[u].operations == unit.operations);
    const Executor& executor = world.executors[choices[first].executor];
    const double bytes = static_cast<double>(unit.touched) / executor.bandwidth;
    const double work = unit.operations / executor.speed;
    const double longer = static_cast<double>(u - first) * std::max(bytes, work);
    if (executor.device == kCpuDevice) cpu_time += longer;
    (bytes >= work ? bytes_time : work_time) += longer;
  }
  const bool on_cpu = cpu_time * 2 > bytes_time + work_time;
  if (bytes_time >= work_time) return on_cpu ? "RAM" : "GPU memory";
  return on_cpu ? "CPU" : "GPU compute";
}

Prediction prediction(const World& world, const Choices& choices, const Timing& timing) {
  std::string limit = limit_of(world, timing);
  if (limit == "compute and memory") limit = chain_limit(world, choices);
  return {timing.seconds, limit};
}

// Of all tensors, without the room around them.
core::Size bytes_of(const core::Unit& unit) {
  return unit.weights - unit.margin + unit.buffers;
}

// Consecutive units with the same choice.
struct Run {
  Choice choice;
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t count;
  core::Size bytes;
  bool looked_up;
};

struct Runs {
  std::vector<Run> runs;
  std::vector<Held> held;  // by executor
};

Runs runs_of(const World& world, const Choices& choices) {
  Runs result;
  result.runs.reserve(choices.size());
  result.held.resize(world.executors.size());
  core::UnitOrder room;
  const core::UnitOrder& units = first_uses(world, &room);
  for (std::size_t i = 0; i < units.size();) {
    const std::size_t begin = i;
    const Choice choice = choices[units[i]];
    core::Unit sum;
    const auto looked_up = [&](std::uint32_t u) {
      return choice.store == Store::kDisk &&
             is_looked_up(world.units[u], world.executors[choice.executor]);
    };
    const bool rows = looked_up(units[i]);
    for (; i < units.size() && choices[units[i]] == choice && looked_up(units[i]) == rows; ++i) {
      sum.add_memory(world.units[units[i]]);
    }
    if (rows) sum.slots = 0;
    Run& run = result.runs.emplace_back();
    run.choice = choice;
    run.first = units[begin];
    run.last = units[i - 1];
    run.count = static_cast<std::uint32_t>(i - begin);
    run.bytes = bytes_of(sum);
    run.looked_up = rows;
    Held& held = result.held[choice.executor];
    held.busy = true;
    held.from[static_cast<std::size_t>(choice.store)].add_memory(sum);
  }
  return result;
}

// All weights are read from disk once; those of GPUs go over their links at the same time.
Prediction load_prediction(const World& world, const std::vector<Held>& held) {
  core::Size all = 0;
  for (const Held& item : held) all += bytes_of(item[Store::kHere]) + bytes_of(item[Store::kRam]);
  Prediction result{static_cast<double>(all) / world.disk_bandwidth, "disk"};
  for (std::size_t e = 0; e < held.size(); ++e) {
    const Executor& executor = world.executors[e];
    if (executor.link == 0) continue;
    const double seconds = static_cast<double>(bytes_of(held[e][Store::kHere])) / executor.alone;
    if (seconds <= result.seconds) continue;
    result = {seconds, fmt::format("link of GPU {}", to_string(executor.device))};
  }
  return result;
}

// Most names stand in the map, and a copy is quicker than making them again.
std::vector<PlanStep> steps_of(const ModelWorld& model, const ModuleSizes& sizes,
                               const std::vector<Run>& runs, const DeviceMap& map,
                               const NamePlaces& places) {
  core::Names names(sizes);
  const auto name_of = [&](std::uint32_t unit) {
    const ModuleSizes::Index node = model.keys[unit].front();
    const std::uint32_t place = places.empty() ? core::kNoPlace : places[node];
    return place == core::kNoPlace ? names(node) : map[place].first;
  };
  std::vector<PlanStep> steps;
  steps.reserve(runs.size());
  for (const Run& run : runs) {
    PlanStep& step = steps.emplace_back();
    step.first = name_of(run.first);
    step.last = run.count == 1 ? step.first : name_of(run.last);
    step.count = run.count;
    step.lies = device_of(model.world, run.choice);
    step.runs_on = model.world.executors[run.choice.executor].device;
    step.weights = static_cast<Bytes>(run.bytes);
    step.looked_up = run.looked_up;
  }
  return steps;
}

struct PeerMap {
  DeviceMap map;
  MaxMemory memory;
  std::vector<std::string> warnings;
  std::vector<Budget> reserves;
  std::vector<Budget> shortfall;
  std::string failure;
};

PeerMap peer_map(const Description& description, const ModuleSizes& sizes,
                 const PlanRequest& request) {
  PeerMap result;
  result.memory = request.memory;
  if (request.mode != MapMode::kSequential) {
    BalancedMemory balanced = core::get_balanced_memory(
        description, sizes, request.memory, request.options,
        {request.mode == MapMode::kBalancedLow0, request.memory_from_machine});
    result.memory = std::move(balanced.memory);
    result.failure = std::move(balanced.peer_failure);
  }
  InferredMap inferred =
      core::infer_auto_device_map(description, sizes, result.memory, request.options);
  if (result.failure.empty()) result.failure = std::move(inferred.peer_failure);
  result.map = std::move(inferred.map);
  result.warnings = std::move(inferred.warnings);
  result.reserves = std::move(inferred.reserves);
  for (const Budget& item : inferred.minimum_needed) {
    const Bits have = budget_of(result.memory, item.device).value_or(0);
    result.shortfall.push_back({item.device, item.bits > have ? item.bits - have : 0});
    result.warnings.push_back(fmt::format("nothing fits on device {}: {} bytes required",
                                          to_string(item.device), exact_bytes(item.bits)));
  }
  return result;
}

// What Accelerate's maps would mean here: ours are never slower.
std::vector<Choices> peer_choices(const Description& description, const ModuleSizes& sizes,
                                  const PlanRequest& request, const ModelWorld& model) {
  std::vector<Choices> result;
  if (request.mode != MapMode::kAuto) return result;
  PlanRequest peer = request;
  const BalanceOptions balance{false, request.memory_from_machine};
  const MaxMemory balanced =
      core::get_balanced_memory(description, sizes, request.memory, request.options, balance)
          .memory;
  for (const MapMode mode : {MapMode::kAuto, MapMode::kSequential}) {
    peer.mode = mode;
    const auto nodes = core::infer_node_map(
        description, sizes, mode == MapMode::kAuto ? balanced : request.memory, request.options);
    auto found = nodes ? from_node_map(model, sizes, *nodes)
                       : from_device_map(model, sizes, peer_map(description, sizes, peer).map);
    if (found) result.push_back(std::move(*found));
  }
  return result;
}

// Whether passes are recorded: one GPU has everything.
bool is_recorded(const World& world, const Choices& choices) {
  std::optional<Choice> first;
  for (std::size_t u = 0; u < choices.size(); ++u) {
    if (world.units[u].weights + world.units[u].extra == 0) continue;
    if (!first) first = choices[u];
    if (choices[u] != *first) return false;
  }
  return first && first->store == Store::kHere &&
         world.executors[first->executor].device.is_accelerator();
}

// Also of a map that does not keep the budgets: the plan then says so.
std::optional<Choices> choices_for(const DeviceMap& map, const ModelWorld& model,
                                   const ModuleSizes& sizes, Plan* plan) {
  std::optional<Choices> choices = from_device_map(model, sizes, map);
  if (!choices) {
    plan->warnings.push_back(
        "the map uses devices without a budget, or several for one unsplittable block or tied "
        "tensor; its time cannot be predicted");
  }
  return choices;
}

// Of the rows in RAM: as much as leaves the links what they bring while the CPU is done with the
// others, and with its waiting.
double cpu_share(const World& world, const std::vector<Held>& held, const Timing& timing) {
  double copied = 0;
  double brought = 0;
  double helped = 0;
  for (std::size_t e = 0; e < world.executors.size(); ++e) {
    const Executor& executor = world.executors[e];
    const core::Size in_ram = held[e][Store::kRam].weights;
    if (in_ram == 0 || executor.helped == 0) continue;
    const double bytes = static_cast<double>(in_ram + held[e][Store::kDisk].weights);
    copied += bytes;
    helped = executor.helped;
    const double seconds = timing.link[e] - timing.on_cpu - executor.brought;
    const bool is_helped = seconds < (1 - core::kTimeRounding) * bytes / executor.alone;
    brought += is_helped ? seconds * executor.link * (1 - executor.helped) : bytes;
  }
  if (copied == 0) return 0;
  return world.cpu_share * std::max(0.0, (1 - brought / copied) / helped);
}

// As many as leave the CPU done with its share before the links alone would have brought all.
std::int64_t helped_rows(const World& world, double share, const Profile& profile, Dtype dtype) {
  if (share <= 0 || !profile.measured) return kFewRows;
  double links = 0;
  for (const Executor& executor : world.executors) links += executor.alone;
  const double rows = core::multiplied(profile, dtype, 1) / (share * links);
  return static_cast<std::int64_t>(
      std::clamp(rows, static_cast<double>(kFewRows), static_cast<double>(kMostHelpedRows)));
}

// Of prompts that fill the context.
Prediction first_token(const Description& description, const PlanRequest& request,
                       const Profile& profile, const ModuleSizes& sizes, const Choices& choices,
                       const Workload& step) {
  Workload load = prompt_workload(description, request, profile);
  if (step.kv_in_ram) load = with_kv_in_ram(load, description, request).value_or(load);
  load.apart = step.apart;
  load.tables = step.tables;
  ModelWorld prompt =
      build_world(description, sizes, request.options, request.memory, profile, load);
  // Each part of the prompts needs all weights. An encoder reads them whole.
  const bool in_parts = description.dimensions->encoder_layers == 0;
  const std::int64_t context = *request.context;
  const PromptPart part =
      in_parts ? prompt_part(request.batch, context, context) : PromptPart{request.batch, context};
  const std::int64_t of_each = (context + part.tokens - 1) / part.tokens;
  // The first part of a prompt looks at none before it, the last at nearly all.
  const double of_all = static_cast<double>(part.rows) / static_cast<double>(request.batch);
  const double earlier = of_each > 1 ? of_all / 2 : 0;
  for (Executor& executor : prompt.world.executors) executor.brought *= earlier;
  Timing whole = predict(prompt.world, choices);
  const std::int64_t groups = (request.batch + part.rows - 1) / part.rows;
  const auto passes = static_cast<double>(groups * of_each);
  whole.disk *= passes;
  whole.seconds = std::max(whole.chain, whole.disk);
  for (double& link : whole.link) whole.seconds = std::max(whole.seconds, link *= passes);
  return prediction(prompt.world, choices, whole);
}

void fill(const Description& description, const PlanRequest& request, const Profile& profile,
          const Workload& load, const ModuleSizes& sizes, const ModelWorld& model,
          const Choices& choices, const Timing& timing, const NamePlaces& places, Plan* plan) {
  const auto [runs, held] = runs_of(model.world, choices);
  plan->fits = timing.fits;
  plan->kv_in_ram = load.kv_in_ram;
  plan->steps = steps_of(model, sizes, runs, plan->map, places);
  plan->devices = core::devices_of(model.world, held, timing, plan->memory, load);
  plan->load = load_prediction(model.world, held);
  plan->token = prediction(model.world, choices, timing);
  plan->cpu_share = cpu_share(model.world, held, timing);
  plan->helped_rows = helped_rows(model.world, plan->cpu_share, profile, request.dtype);
  const bool generates = description.dimensions && description.dimensions->causal;
  if (request.context && generates && timing.fits) {
    plan->first_token = first_token(description, request, profile, sizes, choices, load);
  }
  if (!timing.fits) plan->token = plan->load = {};
}

}  // namespace

Plan make_plan(const Description& description, const PlanRequest& request, const Profile& profile) {
  Plan plan;
  plan.model = request.model;
  plan.planner = request.planner;
  plan.mode = request.mode;
  plan.context = request.context;
  plan.batch = request.batch;
  if (request.context) plan.dtype = request.dtype;
  plan.memory = request.memory;

  const ModuleSizes sizes = compute_module_sizes(description, request.options.sizes);
  const auto world_for = [&](const Workload& load) {
    return build_world(description, sizes, request.options, request.memory, profile, load);
  };
  Workload load = plan_workload(description, request, profile);
  ModelWorld model = world_for(load);
  std::optional<Choices> choices;
  std::optional<Timing> timing;
  std::vector<Budget> reserves;
  NamePlaces places;  // in the map
  if (request.given_map) {
    plan.map = *request.given_map;
    choices = choices_for(plan.map, model, sizes, &plan);
  } else if (request.planner == Planner::kAccelerate) {
    PeerMap peer = peer_map(description, sizes, request);
    plan.map = std::move(peer.map);
    plan.memory = std::move(peer.memory);
    plan.warnings = std::move(peer.warnings);
    plan.peer_failure = std::move(peer.failure);
    plan.shortfall = std::move(peer.shortfall);
    reserves = std::move(peer.reserves);
    choices = choices_for(plan.map, model, sizes, &plan);
  } else {
    Placed placed = place_model(
        description, sizes, request, profile, request.mode,
        [&](const ModelWorld& given) { return peer_choices(description, sizes, request, given); });
    load = placed.load;
    model = std::move(placed.model);
    std::optional<core::Placement>& placement = placed.placement;
    if (placement) {
      choices = std::move(placement->choices);
      timing = std::move(placement->timing);
      plan.best_possible = placement->bound;
      plan.proven_best = placement->proven && request.mode == MapMode::kAuto;
      if (plan.proven_best) plan.best_possible = timing->seconds;
      plan.map = to_device_map(model, sizes, *choices, request.options.clean_result, &places);
    }
  }
  if (choices && (load.kv_in_ram || !is_recorded(model.world, *choices))) {
    const Bytes counted = load.of_driver();
    load = apart(load, core::in_ram_for_gpus(model.world, *choices, load));
    if (load.of_driver() != counted) {
      // There is other memory than was counted, more for a second slot perhaps.
      model = world_for(load);
      timing.reset();
    }
  }
  if (choices && !timing) {
    timing = predict(model.world, *choices);
    const World least = world_for(load.apart ? apart(load, 0) : load).world;
    plan.best_possible = lower_bound(least, kinds_of(least));
    plan.proven_best = plan.proven_best && core::meets(timing->seconds, plan.best_possible);
  }
  if (choices) {
    fill(description, request, profile, load, sizes, model, *choices, *timing, places, &plan);
  }
  if (request.given_map || request.planner == Planner::kAccelerate) {
    if (!request.context || !choices) {
      plan.devices = core::devices_of_map(sizes, request.options, plan, reserves, load);
    }
    if (choices && !plan.fits) plan.warnings.push_back("the map needs more than its budgets hold");
  }
  if (!plan.fits && !request.given_map && request.planner == Planner::kHaul) {
    core::add_shortfall(description, request, profile, &plan);
  }
  return plan;
}

std::optional<std::int64_t> longest_context(const Description& description, PlanRequest request,
                                            const Profile& profile, std::int64_t minimum,
                                            std::int64_t most) {
  request.mode = MapMode::kAuto;
  const auto stays = [&](std::int64_t context) {
    request.context = context;
    const Plan plan = make_plan(description, request, profile);
    const bool has_gpu = std::any_of(
        request.memory.begin(), request.memory.end(),
        [](const Budget& item) { return item.device.is_accelerator() && item.bytes() > 0; });
    return plan.fits && !plan.kv_in_ram &&
           std::all_of(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& s) {
             return s.lies == s.runs_on && (s.lies.is_accelerator() || !has_gpu);
           });
  };
  if (minimum < 1 || most < minimum || !stays(minimum)) return std::nullopt;
  std::int64_t low = minimum;
  std::int64_t high = most;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (stays(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace haul
