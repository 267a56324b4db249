#include "haul/profile.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "haul/bytes.h"
#include "haul/error.h"

namespace haul {
namespace {

using core::Json;

constexpr Bytes kMaxFile = 1 * kMiB;
constexpr double kFastest = 1e18;

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  Profile read(const Json& json) const {
    Profile profile;
    if (!json.is_object()) fail("a profile is a JSON object");
    if (!json.contains("version") || json["version"] != kProfileVersion) {
      fail(fmt::format("version {} expected, found {}", kProfileVersion,
                       json.contains("version") ? json["version"].dump() : "none"));
    }
    for (const auto& [key, value] : json.items()) {
      if (key == "version") continue;
      if (key == "gpu") {
        profile.gpu = gpu(value, profile.gpu, key);
      } else if (key == "gpus") {
        if (!value.is_object()) fail("\"gpus\" is not an object");
        for (const auto& [number, item] : value.items()) {
          profile.gpus[index(number)] = gpu(item, profile.gpu, "gpus." + number);
        }
      } else if (key == "measured" && value.is_boolean()) {
        profile.measured = value.get<bool>();
      } else if (key == "ram_bandwidth") {
        profile.ram_bandwidth = rate(value, key);
      } else if (key == "help_bandwidth") {
        profile.help_bandwidth = number_or_0(value, key);
      } else if (key == "help_link") {
        profile.help_link = number_or_0(value, key);
      } else if (key == "help_call") {
        profile.help_call = number_or_0(value, key);
      } else if (key == "cpu_operations") {
        profile.cpu_operations = rate(value, key);
      } else if (key == "cpu_call") {
        profile.cpu_call = number_or_0(value, key);
      } else if (key == "cpu_by_input") {
        profile.cpu_by_input = number_or_0(value, key);
      } else if (key == "disk_bandwidth") {
        profile.disk_bandwidth = rate(value, key);
      } else if (key == "hop") {
        profile.hop = rate(value, key);
      } else {
        fail(fmt::format("unexpected \"{}\"", key));
      }
    }
    return profile;
  }

 private:
  GpuProfile gpu(const Json& json, GpuProfile result, const std::string& where) const {
    if (!json.is_object()) fail(fmt::format("\"{}\" is not an object", where));
    for (const auto& [key, value] : json.items()) {
      std::string place = where;
      place += "." + key;
      if (key == "memory_bandwidth") {
        result.memory_bandwidth = rate(value, place);
      } else if (key == "link_bandwidth") {
        result.link_bandwidth = rate(value, place);
      } else if (key == "operations") {
        result.operations = rate(value, place);
      } else if (key == "call") {
        result.call = number_or_0(value, place);
      } else if (key == "by_input") {
        result.by_input = number_or_0(value, place);
      } else if (key == "attended") {
        result.attended = number_or_0(value, place);
      } else if (key == "context") {
        result.context = bytes(value, place);
      } else if (key == "recorded") {
        result.recorded = bytes(value, place);
      } else {
        fail(fmt::format("unexpected \"{}\"", place));
      }
    }
    return result;
  }

  double rate(const Json& value, const std::string& key) const {
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!std::isfinite(number) || number <= 0 || number > kFastest) {
      fail(fmt::format("\"{}\" is {}, not a positive number", key, value.dump()));
    }
    return number;
  }

  double number_or_0(const Json& value, const std::string& key) const {
    return value == 0 ? 0 : rate(value, key);
  }

  Bytes bytes(const Json& value, const std::string& key) const {
    return static_cast<Bytes>(number_or_0(value, key));
  }

  int index(const std::string& text) const {
    int number = -1;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc{} || stop != text.data() + text.size() || number < 0) {
      fail(fmt::format("\"gpus\" has \"{}\", which is not a device number", text));
    }
    return number;
  }

  [[noreturn]] void fail(std::string_view why) const {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: profile: {}", source_, why));
  }

  std::string_view source_;
};

Json gpu_json(const GpuProfile& gpu) {
  return {{"memory_bandwidth", gpu.memory_bandwidth},
          {"link_bandwidth", gpu.link_bandwidth},
          {"operations", gpu.operations},
          {"call", gpu.call},
          {"by_input", gpu.by_input},
          {"attended", gpu.attended},
          {"context", gpu.context},
          {"recorded", gpu.recorded}};
}

}  // namespace

const GpuProfile& Profile::of_gpu(int index) const {
  const auto found = gpus.find(index);
  return found == gpus.end() ? gpu : found->second;
}

Profile read_profile(std::string_view json, std::string_view source) {
  return Reader(source).read(core::parse_json(json, source));
}

std::string write_profile(const Profile& profile) {
  Json json;
  json["version"] = kProfileVersion;
  json["measured"] = profile.measured;
  json["gpu"] = gpu_json(profile.gpu);
  json["gpus"] = Json::object();
  for (const auto& [number, gpu] : profile.gpus)
    json["gpus"][std::to_string(number)] = gpu_json(gpu);
  json["ram_bandwidth"] = profile.ram_bandwidth;
  json["help_bandwidth"] = profile.help_bandwidth;
  json["help_link"] = profile.help_link;
  json["help_call"] = profile.help_call;
  json["cpu_operations"] = profile.cpu_operations;
  json["cpu_call"] = profile.cpu_call;
  json["cpu_by_input"] = profile.cpu_by_input;
  json["disk_bandwidth"] = profile.disk_bandwidth;
  json["hop"] = profile.hop;
  return json.dump(1) + "\n";
}

std::filesystem::path profile_path() {
  if (const char* path = std::getenv("HAUL_PROFILE"); path != nullptr && *path != '\0') return path;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "haul" / "profile.json";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "/" : home) / ".cache" / "haul" / "profile.json";
}

Profile load_profile() {
  const std::filesystem::path path = profile_path();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  return read_profile(core::read_file(path, kMaxFile), path.string());
}

}  // namespace haul
