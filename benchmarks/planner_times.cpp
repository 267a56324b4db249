// Seconds that planning takes inside a process, for benchmarks/planner.py:
//   planner_times tree FILE BUDGETS     Accelerate's planner, then haul's
//   planner_times config FILE BUDGETS   haul's plan with a context of 4096
// Prints the least of several runs, a number a line: of as many as half a second holds, as on the
// peer's side. What a run makes is freed after its clock has been read. Accelerate's planner goes
// as in `haul map --planner accelerate`: one table of sizes serves both the budgets and the map.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/describe/describe.h"
#include "core/place/peer_planner.h"
#include "haul/plan.h"

namespace {

template <typename Work>
double least_seconds(Work work) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(500);
  std::chrono::duration<double> least(1e9);
  do {
    const auto start = Clock::now();
    [[maybe_unused]] const auto made = work();
    least = std::min<std::chrono::duration<double>>(least, Clock::now() - start);
  } while (Clock::now() < end);
  return least.count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  haul::PlanRequest request;
  request.memory = haul::parse_max_memory(argv[3]);
  haul::Description description;
  if (std::string(argv[1]) == "tree") {
    description = haul::read_tree(haul::core::read_file(argv[2], haul::kGiB), argv[2]);
    request.options.no_split = description.no_split;
    std::printf("%.6f\n", least_seconds([&] {
                  const haul::ModuleSizes sizes =
                      haul::compute_module_sizes(description, request.options.sizes);
                  haul::BalancedMemory balanced = haul::core::get_balanced_memory(
                      description, sizes, request.memory, request.options, {});
                  haul::InferredMap inferred = haul::core::infer_auto_device_map(
                      description, sizes, balanced.memory, request.options);
                  return std::pair(std::move(balanced), std::move(inferred));
                }));
  } else {
    const haul::core::DescribeOptions stored{false, haul::core::WeightDtype::kStored};
    description = haul::core::describe_config(haul::core::read_json(argv[2]), argv[2], stored);
    request.options.no_split = description.no_split;
    request.context = 4096;
  }
  std::printf("%.6f\n", least_seconds([&] {
                return haul::make_plan(description, request, haul::Profile{});
              }));
  return 0;
}
