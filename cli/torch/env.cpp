#include <sys/utsname.h>

#include <memory>
#include <thread>

#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "cli/verb.h"
#include "core/base/json.h"
#include "runtime/tiers/gpu.h"

namespace haul::cli {
namespace {

core::Json report() {
  utsname system{};
  ::uname(&system);
  core::Json json;
  json["haul"] = HAUL_VERSION;
  json["torch"] = TORCH_VERSION;
  json["cuda_part"] = runtime::built_for_gpus();
  json["system"] = fmt::format("{} {}", system.sysname, system.release);
  json["machine"] = system.machine;
  json["cpu"] = at::get_cpu_capability();
  json["cores"] = std::thread::hardware_concurrency();
  json["gpus"] = core::Json::array();
  for (const runtime::Gpu& gpu : runtime::gpus()) {
    json["gpus"].push_back(
        {{"index", gpu.index}, {"name", gpu.name}, {"total", gpu.total}, {"free", gpu.free}});
  }
  return json;
}

void print(const core::Json& json) {
  for (const auto& [key, value] : json.items()) {
    if (key == "gpus") continue;
    fmt::print("{:<10} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  if (json["gpus"].empty()) fmt::print("{:<10} none\n", "gpus");
  for (const core::Json& gpu : json["gpus"]) {
    fmt::print("gpu {:<6} {}, {} free of {}\n", gpu["index"].get<int>(),
               gpu["name"].get<std::string>(), format_bytes(gpu["free"].get<Bytes>()),
               format_bytes(gpu["total"].get<Bytes>()));
  }
}

}  // namespace

void add_env(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("env", "Print versions and hardware, for a bug report");
  verb->add_flag("--json", *as_json, "as JSON");
  verb->callback([as_json] {
    const core::Json json = report();
    if (*as_json) {
      fmt::print("{}\n", json.dump(1));
    } else {
      print(json);
    }
  });
}

}  // namespace haul::cli
