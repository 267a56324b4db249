#include <fmt/format.h>
#include <memory>

#include "cli/placement.h"
#include "cli/verb.h"
#include "core/base/json.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

using core::Json;

Json device_json(Device device) {
  if (device.kind == DeviceKind::kGpu) return device.index;
  return to_string(device);
}

Json bytes_json(Bits bits) {
  if (bits % 8 == 0) return bits / 8;
  return exact_bytes(bits);
}

Json budgets_json(const std::vector<Budget>& budgets) {
  Json result = Json::object();
  for (const Budget& item : budgets) result[to_string(item.device)] = bytes_json(item.bits);
  return result;
}

Json report_json(const MapReport& report) {
  Json result;
  result["device_map"] = Json::object();
  for (const auto& [name, device] : report.map) result["device_map"][name] = device_json(device);
  result["max_memory"] = budgets_json(report.memory);
  result["warnings"] = report.warnings;
  result["devices"] = Json::array();
  for (const DeviceRow& row : report.devices) {
    Json item;
    item["device"] = device_json(row.device);
    item["budget"] = row.budget ? bytes_json(*row.budget) : Json();
    item["weights"] = bytes_json(row.weights);
    item["reserve"] = bytes_json(row.reserve);
    item["free"] = row.budget ? bytes_json(row.free()) : Json();
    result["devices"].push_back(std::move(item));
  }
  result["shortfall"] = budgets_json(report.shortfall);
  if (!report.peer_failure.empty()) result["peer_failure"] = report.peer_failure;
  return result;
}

void print_report(const MapReport& report) {
  std::size_t width = 6;
  for (const auto& [name, device] : report.map) width = std::max(width, name.size());
  fmt::print("{:<{}}  device\n", "module", width);
  for (const auto& [name, device] : report.map) {
    fmt::print("{:<{}}  {}\n", name.empty() ? "(all)" : name, width, to_string(device));
  }
  fmt::print("\n{:<6}  {:>12}  {:>12}  {:>12}  {:>12}\n", "device", "budget", "weights", "reserve",
             "free");
  for (const DeviceRow& row : report.devices) {
    fmt::print("{:<6}  {:>12}  {:>12}  {:>12}  {:>12}\n", to_string(row.device),
               row.budget ? format_bytes(*row.budget / 8) : "no limit",
               format_bytes(whole_bytes(row.weights)), format_bytes(whole_bytes(row.reserve)),
               row.budget ? format_bytes(row.free() / 8) : "");
  }
  for (const std::string& warning : report.warnings) {
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
    const MapReport report = make_map(*flags);
    if (*json) {
      fmt::print("{}\n", report_json(report).dump(1));
    } else {
      print_report(report);
    }
  });
}

}  // namespace haul::cli
