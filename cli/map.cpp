#include <algorithm>
#include <cctype>
#include <memory>

#include <fmt/format.h>

#include "cli/placement.h"
#include "cli/verb.h"
#include "core/base/json.h"

namespace haul::cli {
namespace {

using core::Json;

Json device_json(Device device) {
  if (device.kind == DeviceKind::kGpu) return device.index;
  return to_string(device);
}

Json budgets_json(const std::vector<Budget>& budgets) {
  Json result = Json::object();
  for (const Budget& item : budgets) {
    // Balancing by the peer's rules can leave a fraction of a byte.
    result[to_string(item.device)] =
        item.bits % 8 == 0 ? Json(item.bits / 8) : Json(exact_bytes(item.bits));
  }
  return result;
}

Bytes room_left(const PlanDevice& device) {
  return *device.budget - std::min(*device.budget, device.used());
}

// Everything on a device that is not weights.
Bytes reserve(const PlanDevice& device) {
  return device.used() - device.weights;
}

Json map_json(const Plan& plan) {
  Json result;
  result["device_map"] = Json::object();
  // Names are different already; looking each up first would take quadratic time.
  auto& entries = result["device_map"].get_ref<Json::object_t&>();
  for (const auto& [name, device] : plan.map) entries.push_back({name, device_json(device)});
  result["max_memory"] = budgets_json(plan.memory);
  result["warnings"] = plan.warnings;
  result["devices"] = Json::array();
  for (const PlanDevice& device : plan.devices) {
    result["devices"].push_back({{"device", device_json(device.device)},
                                 {"budget", device.budget ? Json(*device.budget) : Json()},
                                 {"weights", device.weights},
                                 {"reserve", reserve(device)},
                                 {"free", device.budget ? Json(room_left(device)) : Json()}});
  }
  result["shortfall"] = budgets_json(plan.shortfall);
  if (!plan.changes.empty()) result["changes"] = plan.changes;
  if (!plan.peer_failure.empty()) result["peer_failure"] = plan.peer_failure;
  return result;
}

// "h.9" before "h.10".
bool before(std::string_view a, std::string_view b) {
  const auto digits = [](std::string_view text, std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    return end - at;
  };
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const std::size_t length_a = digits(a, i);
    const std::size_t length_b = digits(b, i);
    if (length_a > 0 && length_b > 0 && length_a != length_b) return length_a < length_b;
    if (a[i] != b[i]) return a[i] < b[i];
  }
  return a.size() < b.size();
}

void print_map(const Plan& plan) {
  DeviceMap map = plan.map;
  std::sort(map.begin(), map.end(),
            [](const auto& a, const auto& b) { return before(a.first, b.first); });
  std::size_t width = 6;
  for (const auto& [name, device] : map) width = std::max(width, name.size());
  if (!map.empty()) fmt::print("{:<{}}  device\n", "module", width);
  for (const auto& [name, device] : map) {
    fmt::print("{:<{}}  {}\n", name.empty() ? "(all)" : name, width, to_string(device));
  }
  if (!plan.devices.empty()) {
    fmt::print("\n{:<6}  {:>12}  {:>12}  {:>12}  {:>12}\n", "device", "budget", "weights",
               "reserve", "free");
  }
  for (const PlanDevice& device : plan.devices) {
    fmt::print("{:<6}  {:>12}  {:>12}  {:>12}  {:>12}\n", to_string(device.device),
               device.budget ? format_bytes(*device.budget) : "no limit",
               format_bytes(device.weights), format_bytes(reserve(device)),
               device.budget ? format_bytes(room_left(device)) : "");
  }
  if (plan.map.empty()) fmt::print("It does not fit. It would with one of:\n");
  for (const std::string& change : plan.changes) fmt::print("  {}\n", change);
  for (const std::string& warning : plan.warnings) {
    fmt::print(stderr, "haul: warning: {}\n", warning);
  }
}

}  // namespace

void add_map(CLI::App& app) {
  auto flags = std::make_shared<PlacementFlags>();
  auto json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("map", "Put every module on a device");
  add_placement_flags(*verb, flags.get());
  verb->add_flag("--json", *json, "print the map as JSON");
  verb->callback([flags, json] {
    const Plan plan = make_plan(*flags, load_profile());
    if (*json) {
      fmt::print("{}\n", map_json(plan).dump(1));
    } else {
      print_map(plan);
    }
  });
}

}  // namespace haul::cli
