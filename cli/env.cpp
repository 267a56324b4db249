#include "cli/env.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "core/base/machine.h"
#include "core/launch/launch_config.h"
#include "haul/bytes.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter = R"(Examples:
  haul env          to paste into a report of a problem
  haul env --json   for a program)";

// What follows `key` and its separator on the first line that begins with it.
std::string field(const fs::path& path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(separator);
    if (!line.starts_with(key) || at == line.npos) continue;
    std::string value = line.substr(at + 1);
    value.erase(0, std::min(value.find_first_not_of(" \t\""), value.size()));
    while (!value.empty() && (value.back() == '"' || value.back() == ' ')) value.pop_back();
    return value;
  }
  return {};
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_name() {
  const fs::path info = "/proc/cpuinfo";
  std::string name = field(info, "model name", ':');
  if (name.empty()) {
    name = fmt::format("implementer {} part {}", field(info, "CPU implementer", ':'),
                       field(info, "CPU part", ':'));
  }
  return name;
}

core::Json cpu_features() {
  std::string text = field("/proc/cpuinfo", "flags", ':');
  if (text.empty()) text = field("/proc/cpuinfo", "Features", ':');
  core::Json features = core::Json::array();
  std::istringstream words(text);
  for (std::string word; words >> word;) features.push_back(word);
  return features;
}

core::Json config_report(const std::string& config_file) {
  const fs::path path = config_file.empty() ? core::default_config_file() : fs::path(config_file);
  core::Json report{{"file", path.string()}};
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    report["error"] = "not there";
    return report;
  }
  try {
    const auto config = core::read_launch_config(path);
    report["values"] = core::parse_json(core::write_launch_config(config, true), "config");
  } catch (const Error& error) {
    report["error"] = error.what();
  }
  return report;
}

core::Json report(const std::string& config_file) {
  utsname system{};
  ::uname(&system);
  const core::Os os = core::this_os();
  const core::Machine machine = core::read_machine(os);
  core::Json json;
  json["haul"] = HAUL_VERSION;
  json["torch"] = "not built";
  json["system"] = fmt::format("{} {}", system.sysname, system.release);
  json["distribution"] = field("/etc/os-release", "PRETTY_NAME", '=');
  json["machine"] = system.machine;
  json["cpu"] = cpu_name();
  json["cores"] = std::thread::hardware_concurrency();
  json["cpu_features"] = cpu_features();
  const Bytes total = std::strtoull(field("/proc/meminfo", "MemTotal", ':').c_str(), nullptr, 10);
  json["memory"] = {{"total", total * kKiB}, {"free", core::available_ram(os.root)}};
  json["disk"] = {{"folder", fs::current_path().string()}, {"free", core::free_disk(".")}};
  json["driver"] = first_line("/sys/module/nvidia/version");
  json["gpus"] = core::Json::array();
  for (const core::GpuMemory& gpu : machine.gpus) {
    json["gpus"].push_back({{"index", json["gpus"].size()},
                            {"name", gpu.name},
                            {"total", gpu.total},
                            {"free", gpu.free}});
  }
  json["config"] = config_report(config_file);
  return json;
}

std::string shown(const core::Json& value) {
  if (value.is_string())
    return value.get<std::string>().empty() ? "none" : value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string words;
  for (const core::Json& item : value) {
    words += (words.empty() ? "" : " ") + item.get<std::string>();
  }
  return words;
}

std::string sizes(const core::Json& value) {
  const std::string free = format_bytes(value["free"].get<Bytes>());
  if (!value.contains("total")) return free + " free";
  return fmt::format("{} free of {}", free, format_bytes(value["total"].get<Bytes>()));
}

void print(const core::Json& json) {
  const auto line = [](const std::string& key, const std::string& value) {
    fmt::print("{:<13} {}\n", key, value);
  };
  for (const auto& [key, value] : json.items()) {
    if (key == "gpus") {
      if (value.empty()) line("gpus", "none");
      for (const core::Json& gpu : value) {
        line(fmt::format("gpu {}", gpu["index"].get<int>()),
             fmt::format("{}, {}", gpu["name"].get<std::string>(), sizes(gpu)));
      }
    } else if (key == "memory") {
      line(key, sizes(value));
    } else if (key == "disk") {
      line(key, fmt::format("{} in {}", sizes(value), value["folder"].get<std::string>()));
    } else if (key == "config") {
      const std::string error = value.value("error", "");
      line(key, value["file"].get<std::string>() + (error.empty() ? "" : ": " + error));
      if (!value.contains("values")) continue;
      for (const auto& [name, setting] : value["values"].items()) {
        line("", fmt::format("{}: {}", name,
                             setting.is_string() ? setting.get<std::string>() : setting.dump()));
      }
    } else {
      line(key, shown(value));
    }
  }
}

}  // namespace

void add_env(CLI::App& app, const std::function<void(core::Json&)>& more) {
  struct Flags {
    std::string config_file;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("env", "Print what a report of a problem needs");
  verb->footer(kFooter);
  verb->add_option("--config-file", flags->config_file, "show this launch config");
  verb->add_flag("--json", flags->json, "as JSON");
  verb->callback([flags, more] {
    core::Json json = report(flags->config_file);
    more(json);
    if (flags->json) {
      fmt::print("{}\n", json.dump(1, ' ', false, core::Json::error_handler_t::replace));
    } else {
      print(json);
    }
  });
}

}  // namespace haul::cli
