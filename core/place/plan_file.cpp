#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "core/base/json.h"
#include "core/place/plan_checksum.h"
#include "haul/error.h"
#include "haul/plan.h"

namespace haul {
namespace core {

// FNV-1a.
std::string plan_checksum(const Json& json) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace core

namespace {

using core::Json;
using core::plan_checksum;

constexpr double kLongest = 1e15;  // seconds

Json prediction_json(const Prediction& prediction) {
  return {{"seconds", prediction.seconds}, {"limit", prediction.limit}};
}

Json budgets_json(const std::vector<Budget>& budgets) {
  Json result = Json::object();
  for (const Budget& item : budgets) result[to_string(item.device)] = item.bits;
  return result;
}

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  Plan read(const Json& json) {
    Plan plan;
    plan.model = text(json, "model");
    plan.planner = text(json, "planner") == "haul" ? Planner::kHaul : Planner::kAccelerate;
    plan.mode = parse_map_mode(text(json, "mode"));
    if (!at(json, "context").is_null()) plan.context = count(json, "context");
    plan.batch = count(json, "batch");
    if (json.contains("dtype") && !json["dtype"].is_null()) plan.dtype = dtype(json);
    plan.fits = flag(json, "fits");
    for (const auto& [name, device] : object(json, "device_map").items()) {
      plan.map.emplace_back(name, this->device(device));
    }
    plan.map = sorted(std::move(plan.map));
    plan.memory = budgets(json, "max_memory_bits");
    for (const Json& item : list(json, "steps")) plan.steps.push_back(step(item));
    for (const Json& item : list(json, "devices")) plan.devices.push_back(plan_device(item));
    if (json.contains("cpu_share")) plan.cpu_share = share(json, "cpu_share");
    if (json.contains("helped_rows")) plan.helped_rows = helped_rows(json);
    if (json.contains("kv_in_ram")) plan.kv_in_ram = flag(json, "kv_in_ram");
    plan.load = prediction(at(json, "load"));
    if (!at(json, "first_token").is_null()) plan.first_token = prediction(at(json, "first_token"));
    plan.token = prediction(at(json, "token"));
    plan.best_possible = seconds(json, "best_possible");
    plan.proven_best = flag(json, "proven_best");
    plan.shortfall = budgets(json, "shortfall_bits");
    plan.changes = strings(json, "changes");
    plan.warnings = strings(json, "warnings");
    plan.peer_failure = text(json, "peer_failure");
    return plan;
  }

  [[noreturn]] void fail(std::string_view why, std::string hint = {}) const {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: plan: {}", source_, why), std::move(hint));
  }

 private:
  const Json& at(const Json& json, const char* key) const {
    if (!json.is_object() || !json.contains(key)) fail(fmt::format("\"{}\" is missing", key));
    return json[key];
  }
  const Json& object(const Json& json, const char* key) const {
    const Json& value = at(json, key);
    if (!value.is_object()) fail(fmt::format("\"{}\" is not an object", key));
    return value;
  }
  const Json& list(const Json& json, const char* key) const {
    const Json& value = at(json, key);
    if (!value.is_array()) fail(fmt::format("\"{}\" is not a list", key));
    return value;
  }
  std::string text(const Json& json, const char* key) const {
    const Json& value = at(json, key);
    if (!value.is_string()) fail(fmt::format("\"{}\" is not a string", key));
    return value.get<std::string>();
  }
  bool flag(const Json& json, const char* key) const {
    const Json& value = at(json, key);
    if (!value.is_boolean()) fail(fmt::format("\"{}\" is not true or false", key));
    return value.get<bool>();
  }
  Bytes bytes(const Json& json, const char* key) const {
    const Json& value = at(json, key);
    if (!value.is_number_unsigned() || value.get<Bytes>() > kMaxBudget) {
      fail(fmt::format("\"{}\" is not a size", key));
    }
    return value.get<Bytes>();
  }
  std::int64_t count(const Json& json, const char* key) const {
    const Bytes value = bytes(json, key);
    if (value == 0) fail(fmt::format("\"{}\" is 0", key));
    return static_cast<std::int64_t>(value);
  }
  std::int64_t helped_rows(const Json& json) const {
    const std::int64_t rows = count(json, "helped_rows");
    if (rows > kMostHelpedRows) {
      fail(fmt::format("\"helped_rows\" is {}, more than {}", rows, kMostHelpedRows));
    }
    return rows;
  }
  double share(const Json& json, const char* key) const {
    const double value = seconds(json, key);
    if (value >= 1) fail(fmt::format("\"{}\" is not below 1", key));
    return value;
  }
  double seconds(const Json& json, const char* key) const {
    const Json& value = at(json, key);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(number) || number < 0 || number > kLongest) {
      fail(fmt::format("\"{}\" is not a time", key));
    }
    return number;
  }
  std::vector<std::string> strings(const Json& json, const char* key) const {
    std::vector<std::string> result;
    for (const Json& item : list(json, key)) {
      if (!item.is_string()) fail(fmt::format("\"{}\" is not a list of strings", key));
      result.push_back(item.get<std::string>());
    }
    return result;
  }
  Dtype dtype(const Json& json) const {
    const auto found = dtype_from_torch_name(text(json, "dtype"));
    if (!found) fail("\"dtype\" is none that haul knows");
    return *found;
  }
  Device device(const Json& value) const {
    return parse_device(value.is_string() ? value.get<std::string>() : value.dump());
  }
  std::vector<Budget> budgets(const Json& json, const char* key) const {
    std::vector<Budget> result;
    for (const auto& [name, bits] : object(json, key).items()) {
      if (!bits.is_number_unsigned() || bits.get<Bits>() / 8 > kMaxBudget) {
        fail(fmt::format("\"{}\" has no size for {}", key, name));
      }
      result.push_back({parse_device(name), bits.get<Bits>()});
    }
    return get_max_memory(std::move(result));
  }
  Prediction prediction(const Json& json) const {
    return {seconds(json, "seconds"), text(json, "limit")};
  }
  PlanStep step(const Json& json) const {
    return {text(json, "first"),
            text(json, "last"),
            count(json, "count"),
            device(at(json, "lies")),
            device(at(json, "runs_on")),
            bytes(json, "weights"),
            json.contains("looked_up") && flag(json, "looked_up")};
  }
  PlanDevice plan_device(const Json& json) const {
    PlanDevice result;
    result.device = device(at(json, "device"));
    if (!at(json, "budget").is_null()) result.budget = bytes(json, "budget");
    result.weights = bytes(json, "weights");
    result.kv = bytes(json, "kv");
    result.activations = bytes(json, "activations");
    result.context = bytes(json, "context");
    result.slots = bytes(json, "slots");
    if (json.contains("margins")) result.margins = bytes(json, "margins");
    return result;
  }

  std::string_view source_;
};

Json device_json(Device device) {
  if (device.kind == DeviceKind::kGpu) return device.index;
  return to_string(device);
}

Json plan_json(const Plan& plan) {
  Json json;
  json["version"] = kPlanVersion;
  json["model"] = plan.model;
  json["planner"] = plan.planner == Planner::kHaul ? "haul" : "accelerate";
  json["mode"] = to_string(plan.mode);
  json["context"] = plan.context ? Json(*plan.context) : Json();
  json["batch"] = plan.batch;
  json["dtype"] = plan.dtype ? Json(torch_name(*plan.dtype)) : Json();
  json["fits"] = plan.fits;
  json["device_map"] = Json::object();
  // Names are different already; looking each up first would take quadratic time.
  auto& entries = json["device_map"].get_ref<Json::object_t&>();
  for (const auto& [name, device] : plan.map) entries.push_back({name, device_json(device)});
  json["max_memory_bits"] = budgets_json(plan.memory);
  json["steps"] = Json::array();
  for (const PlanStep& step : plan.steps) {
    json["steps"].push_back({{"first", step.first},
                             {"last", step.last},
                             {"count", step.count},
                             {"lies", device_json(step.lies)},
                             {"runs_on", device_json(step.runs_on)},
                             {"weights", step.weights}});
    if (step.looked_up) json["steps"].back()["looked_up"] = true;
  }
  json["devices"] = Json::array();
  for (const PlanDevice& device : plan.devices) {
    json["devices"].push_back({{"device", device_json(device.device)},
                               {"budget", device.budget ? Json(*device.budget) : Json()},
                               {"weights", device.weights},
                               {"kv", device.kv},
                               {"activations", device.activations},
                               {"context", device.context},
                               {"slots", device.slots},
                               {"margins", device.margins}});
  }
  json["cpu_share"] = plan.cpu_share;
  json["helped_rows"] = plan.helped_rows;
  json["kv_in_ram"] = plan.kv_in_ram;
  json["load"] = prediction_json(plan.load);
  json["first_token"] = plan.first_token ? prediction_json(*plan.first_token) : Json();
  json["token"] = prediction_json(plan.token);
  json["tokens_per_second"] = plan.tokens_per_second();
  json["best_possible"] = plan.best_possible;
  json["proven_best"] = plan.proven_best;
  json["gap"] = plan.gap();
  json["shortfall_bits"] = budgets_json(plan.shortfall);
  json["changes"] = plan.changes;
  json["warnings"] = plan.warnings;
  json["peer_failure"] = plan.peer_failure;
  return json;
}

}  // namespace

std::string write_plan(const Plan& plan) {
  Json json = plan_json(plan);
  json["checksum"] = plan_checksum(json);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Plan read_plan(std::string_view json, std::string_view source) {
  Json document = core::parse_json(json, source);
  Reader reader(source);
  if (!document.is_object() || !document.contains("version")) reader.fail("this is no plan");
  if (document["version"] != kPlanVersion) {
    reader.fail(
        fmt::format("version {} expected, found {}", kPlanVersion, document["version"].dump()),
        "make the plan again with this haul");
  }
  const Json written = document.contains("checksum") ? document["checksum"] : Json();
  document.erase("checksum");
  if (written != plan_checksum(document)) {
    reader.fail("the file was edited after it was written",
                "make the plan again; a map of your own goes to --device-map FILE.json");
  }
  try {
    return reader.read(document);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kCorrupt) throw;
    reader.fail(error.what());
  }
}

}  // namespace haul
