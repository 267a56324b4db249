#include "core/place/workload.h"

#include <algorithm>

#include "haul/error.h"
#include "haul/estimate.h"

namespace haul::core {
namespace {

// Of a batch's prompts, for each token that is answered: a batch is work to be done, not someone
// who waits for the next word, and prompts are most of it.
constexpr std::int64_t kPromptTokens = 16;

Workload workload(const Description& description, const PlanRequest& request,
                  const Profile& profile, bool whole) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  const std::int64_t context = request.context.value_or(1);
  if (request.batch < 1 || context < 1 || request.batch > kMostTokens / context) {
    throw Error(ErrorKind::kUsage, "batch and context are at least 1 and at most 2^40 together");
  }
  Workload load;
  load.tokens = request.batch * (whole ? context : 1);
  load.margins = request.margins && request.planner == Planner::kHaul;
  if (!request.context) return load;
  const bool recorded = description.dimensions && description.dimensions->causal &&
                        description.dimensions->encoder_layers == 0;
  for (const Budget& item : request.memory) {
    if (!item.device.is_accelerator()) continue;
    const GpuProfile& gpu = profile.of_gpu(item.device.index);
    if (recorded) load.recorded = std::max(load.recorded, gpu.recorded);
    load.gpu_context = std::max(load.gpu_context, gpu.context);
  }
  if (description.dimensions) {
    const Dimensions& d = *description.dimensions;
    load.layers = d.layers;
    const std::int64_t window =
        d.sliding_window > 0 ? std::min(context, d.sliding_window) : context;
    load.attended = static_cast<double>(d.heads * d.head_size) *
                    static_cast<double>(request.batch) *
                    (static_cast<double>((d.layers - d.windowed_layers) * context) +
                     static_cast<double>(d.windowed_layers * window));
  }
  InferenceRequest inference;
  inference.dtype = request.dtype;
  inference.context = context;
  inference.batch = request.batch;
  for (const TableEntry& entry : inference_table(description, inference)) {
    if (entry.tag == Tag::kKv) {
      load.kv = entry.bytes;
    } else if (entry.tag != Tag::kWeights) {
      load.fixed += entry.bytes;
    }
  }
  if (recorded && load.gpu_context > 0) {
    load.recorded += recorded_pass_bytes(description, inference);
  }
  return load;
}

}  // namespace

double multiplied(const Profile& profile, Dtype dtype, std::int64_t rows) {
  // Of what large products reach, those of a few rows beside a busy link had 0.46 to 0.55.
  constexpr double kReached = 0.5;
  const double operations = 2 * static_cast<double>(rows);  // of a weight
  return kReached * profile.cpu_operations / operations * bits(dtype) / 8;
}

Workload plan_workload(const Description& description, const PlanRequest& request,
                       const Profile& profile) {
  const bool generates = description.dimensions && description.dimensions->causal;
  Workload load = workload(description, request, profile, description.dimensions && !generates);
  if (request.context && generates && request.prompts.value_or(request.batch) > kFewRows) {
    load.tokens *= 1 + kPromptTokens;
  }
  const bool known =
      request.dtype == Dtype::kBF16 || request.dtype == Dtype::kF16 || request.dtype == Dtype::kF32;
  if (request.context && generates && known && request.planner == Planner::kHaul &&
      request.batch <= (profile.measured ? kMostHelpedRows : kFewRows)) {
    load.most_help = multiplied(profile, request.dtype, request.batch);
  }
  return load;
}

Workload apart(Workload load, Bytes in_ram) {
  constexpr Bytes kFound = 512;  // bytes for each of a table: 8 for a page of 4 KiB
  load.apart = true;
  load.tables = load.gpu_context > 0 ? in_ram / kFound : 0;
  return load;
}

std::optional<Workload> with_kv_in_ram(const Workload& load, const Description& description,
                                       const PlanRequest& request) {
  if (load.kv == 0 || !description.dimensions || request.mode != MapMode::kAuto) return {};
  const Dimensions& dimensions = *description.dimensions;
  const auto gpus = std::count_if(
      request.memory.begin(), request.memory.end(),
      [](const Budget& item) { return item.device.is_accelerator() && item.bytes() > 0; });
  const Bytes ram = budget_of(request.memory, kCpuDevice).value_or(0) / 8;
  if (gpus != 1 || ram < load.kv) return {};
  // Some of torch's kernels count the numbers of a layer's keys in 32 bits, from token to token.
  constexpr Bytes kMostNumbers = Bytes{1} << 31;
  const Bytes of_a_layer = load.kv / static_cast<Bytes>(std::max<std::int64_t>(1, load.layers));
  if (of_a_layer / 2 >= kMostNumbers * static_cast<Bytes>(bits(request.dtype) / 8)) return {};
  if (dimensions.windowed_layers > 0 || dimensions.encoder_layers > 0) return {};
  Workload result = load;
  result.kv_in_ram = true;
  return result;
}

Workload prompt_workload(const Description& description, const PlanRequest& request,
                         const Profile& profile) {
  return workload(description, request, profile, true);
}

}  // namespace haul::core
