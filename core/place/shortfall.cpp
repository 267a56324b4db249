#include "core/place/shortfall.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/place/place_model.h"
#include "core/place/workload.h"
#include "haul/tensor_memory.h"

namespace haul::core {
namespace {

// Whether a request fits, without asking what would help if not.
bool fits(const Description& description, const PlanRequest& request, const Profile& profile) {
  const ModuleSizes sizes = compute_module_sizes(description, request.options.sizes);
  return place_model(description, sizes, request, profile, MapMode::kAuto, {})
      .placement.has_value();
}

PlanRequest with_budget(PlanRequest request, Device device, Bytes bytes) {
  for (Budget& item : request.memory) {
    if (item.device == device) {
      item.bits = bytes * 8;
      return request;
    }
  }
  request.memory.push_back(budget(device, bytes));
  request.memory = get_max_memory(std::move(request.memory));
  return request;
}

// The least that has to be added to one device; nothing when no amount helps.
std::optional<Bytes> missing_on(const Description& description, const PlanRequest& request,
                                const Profile& profile, Device device, Bytes most) {
  const Bytes have = budget_of(request.memory, device).value_or(0) / 8;
  const auto enough = [&](Bytes more) {
    return fits(description, with_budget(request, device, have + more), profile);
  };
  if (!enough(most)) return std::nullopt;
  Bytes low = 0;
  Bytes high = most;
  while (high - low > 1) {
    const Bytes middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

void suggest_dtype(const Description& description, const PlanRequest& request,
                   const Profile& profile, Plan* plan) {
  struct Narrower {
    int bits;
    const char* name;
  };
  constexpr std::array<Narrower, 3> kNarrower{{{16, "bfloat16"}, {8, "int8"}, {4, "int4"}}};
  for (const Narrower& dtype : kNarrower) {
    if (request.options.sizes.dtype_bits.value_or(64) <= dtype.bits) continue;
    PlanRequest changed = request;
    changed.options.sizes.dtype_bits = dtype.bits;
    if (!fits(description, changed, profile)) continue;
    plan->changes.push_back(fmt::format("weights in {} (--dtype {})", dtype.name, dtype.name));
    return;
  }
}

void suggest_context(const Description& description, const PlanRequest& request,
                     const Profile& profile, Plan* plan) {
  if (!request.context || *request.context < 2) return;
  PlanRequest changed = request;
  const auto works = [&](std::int64_t context) {
    changed.context = context;
    return fits(description, changed, profile);
  };
  if (!works(1)) return;
  std::int64_t low = 1;
  std::int64_t high = *request.context;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (works(middle) ? low : high) = middle;
  }
  plan->changes.push_back(fmt::format("a context of {} tokens (--context {})", low, low));
}

}  // namespace

void add_shortfall(const Description& description, const PlanRequest& request,
                   const Profile& profile, Plan* plan) {
  const ModuleSizes sizes = compute_module_sizes(description, request.options.sizes);
  const Workload load = plan_workload(description, request, profile);
  // With this much on one device nothing can be short.
  const Bytes margins = load.margins ? sizes.nodes().size() * slot_memory(1) : 0;
  const Bytes most =
      2 * (whole_bytes(sizes.total()) + margins + load.kv + load.fixed + load.of_driver() + 1);
  for (const Budget& item : request.memory) {
    const auto missing = missing_on(description, request, profile, item.device, most);
    if (!missing) continue;
    plan->shortfall.push_back(budget(item.device, *missing));
    plan->changes.push_back(
        fmt::format("{} more for device {}", format_bytes(*missing), to_string(item.device)));
  }
  if (!budget_of(request.memory, kCpuDevice)) {
    const auto missing = missing_on(description, request, profile, kCpuDevice, most);
    if (missing)
      plan->changes.push_back(fmt::format("{} of RAM (cpu={})", format_bytes(*missing), *missing));
  }
  if (budget_of(request.memory, kDiskDevice)) {
    const PlanRequest changed = with_budget(request, kDiskDevice, kMaxBudget);
    if (fits(description, changed, profile)) {
      plan->changes.push_back("an offload folder on a disk with more room (--offload-folder)");
    }
  }
  suggest_dtype(description, request, profile, plan);
  suggest_context(description, request, profile, plan);
}

}  // namespace haul::core
