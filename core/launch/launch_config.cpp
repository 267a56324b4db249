#include "core/launch/launch_config.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/file.h"
#include "core/base/quote.h"
#include "core/base/user_folders.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kMaxFile = 256 * kKiB;
constexpr int kMaxProcesses = 1 << 20;
constexpr int kMaxPort = 65535;

constexpr std::pair<DistributedType, const char*> kTypes[] = {
    {DistributedType::kNo, "NO"},
    {DistributedType::kMultiCpu, "MULTI_CPU"},
    {DistributedType::kMultiGpu, "MULTI_GPU"}};
constexpr const char* kOtherTypes[] = {"MULTI_NPU", "MULTI_MLU", "MULTI_SDAA",   "MULTI_MUSA",
                                       "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON", "DEEPSPEED",
                                       "FSDP",      "XLA",       "MEGATRON_LM"};
constexpr std::pair<MixedPrecision, const char*> kPrecisions[] = {{MixedPrecision::kNo, "no"},
                                                                  {MixedPrecision::kFp16, "fp16"},
                                                                  {MixedPrecision::kBf16, "bf16"},
                                                                  {MixedPrecision::kFp8, "fp8"}};
constexpr const char* kKept[] = {"command_file",
                                 "commands",
                                 "deepspeed_config",
                                 "downcast_bf16",
                                 "dynamo_backend",
                                 "dynamo_config",
                                 "fp8_config",
                                 "fsdp_config",
                                 "megatron_lm_config",
                                 "mpirun_config",
                                 "parallelism_config",
                                 "tpu_env",
                                 "tpu_name",
                                 "tpu_use_cluster",
                                 "tpu_use_sudo",
                                 "tpu_vm",
                                 "tpu_zone"};

// One key of the file and the field it fills.
class Field {
 public:
  Field(std::string_view source, const ConfigValue& value) : source_(source), value_(value) {}

  [[noreturn]] void refuse(const std::string& expected) const {
    const std::string found = value_.kind == ConfigValue::Kind::kScalar ? quote(value_.text)
                              : value_.kind == ConfigValue::Kind::kList ? "a list"
                                                                        : "a section";
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: {} is {}, expected {}", where(), value_.key, found, expected));
  }

  bool boolean() const {
    const auto result = as_bool(value_);
    if (!result) refuse("true or false");
    return *result;
  }

  int number(int smallest, int largest) const {
    const auto result = as_integer(value_);
    if (!result || *result < smallest || *result > largest) {
      refuse(fmt::format("a number from {} to {}", smallest, largest));
    }
    return static_cast<int>(*result);
  }

  std::string text() const {
    if (value_.kind != ConfigValue::Kind::kScalar || as_bool(value_)) refuse("a text");
    return value_.text;
  }

  MixedPrecision precision() const {
    if (as_bool(value_) == false) return MixedPrecision::kNo;  // no without its quotes
    const auto result = parse_mixed_precision(text());
    if (!result) refuse("no, fp16, bf16 or fp8");
    return *result;
  }

  void distributed_type(LaunchConfig& config) const {
    if (as_bool(value_) == false) return;  // NO without its quotes
    const std::string word = text();
    for (const auto& [type, name] : kTypes) {
      if (word == name) {
        config.distributed_type = type;
        return;
      }
    }
    if (std::find(std::begin(kOtherTypes), std::end(kOtherTypes), word) == std::end(kOtherTypes)) {
      refuse("NO, MULTI_CPU, MULTI_GPU or another of the peer's types");
    }
    config.distributed_type = DistributedType::kOther;
    config.other_type = word;
  }

 private:
  std::string where() const {
    return value_.line > 0 ? fmt::format("{}: line {}", source_, value_.line)
                           : std::string(source_);
  }

  std::string_view source_;
  const ConfigValue& value_;
};

using Read = void (*)(const Field&, LaunchConfig&);
constexpr std::pair<const char*, Read> kFields[] = {
    {"compute_environment", [](const Field&, LaunchConfig&) {}},  // checked before
    {"debug", [](const Field& field, LaunchConfig& c) { c.debug = field.boolean(); }},
    {"distributed_type", [](const Field& field, LaunchConfig& c) { field.distributed_type(c); }},
    {"enable_cpu_affinity",
     [](const Field& field, LaunchConfig& c) { c.enable_cpu_affinity = field.boolean(); }},
    {"fp16",  // an old spelling of mixed_precision
     [](const Field& field, LaunchConfig& c) {
       if (field.boolean() && !c.mixed_precision) c.mixed_precision = MixedPrecision::kFp16;
     }},
    {"gpu_ids", [](const Field& field, LaunchConfig& c) { c.gpu_ids = field.text(); }},
    {"machine_rank",
     [](const Field& field, LaunchConfig& c) { c.machine_rank = field.number(0, kMaxProcesses); }},
    {"main_process_ip",
     [](const Field& field, LaunchConfig& c) { c.main_process_ip = field.text(); }},
    {"main_process_port",
     [](const Field& field, LaunchConfig& c) { c.main_process_port = field.number(0, kMaxPort); }},
    {"main_training_function",
     [](const Field& field, LaunchConfig& c) { c.main_training_function = field.text(); }},
    {"mixed_precision",
     [](const Field& field, LaunchConfig& c) { c.mixed_precision = field.precision(); }},
    {"num_machines",
     [](const Field& field, LaunchConfig& c) { c.num_machines = field.number(1, kMaxProcesses); }},
    {"num_processes",
     [](const Field& field, LaunchConfig& c) {
       c.num_processes = field.number(-1, kMaxProcesses);
       if (c.num_processes == 0) field.refuse("at least 1, or -1 to leave it open");
     }},
    {"rdzv_backend", [](const Field& field, LaunchConfig& c) { c.rdzv_backend = field.text(); }},
    {"same_network", [](const Field& field, LaunchConfig& c) { c.same_network = field.boolean(); }},
    {"use_cpu", [](const Field& field, LaunchConfig& c) { c.use_cpu = field.boolean(); }},
};

void check_environment(const ConfigValue& root, std::string_view source) {
  for (const ConfigValue& value : root.items) {
    if (value.key != "compute_environment" || value.text == "LOCAL_MACHINE") continue;
    if (value.text == "AMAZON_SAGEMAKER") {
      throw Error(ErrorKind::kUnsupported,
                  fmt::format("{}: compute_environment is AMAZON_SAGEMAKER", source),
                  "haul launches on machines of your own: LOCAL_MACHINE");
    }
    Field(source, value).refuse("LOCAL_MACHINE");
  }
}

LaunchConfig from_tree(const ConfigValue& root, std::string_view source) {
  if (root.kind != ConfigValue::Kind::kMap) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: holds no settings", source),
                "write one with 'haul config' or 'haul config default'");
  }
  check_environment(root, source);
  LaunchConfig config;
  std::vector<std::string> unknown;
  bool has_type = false;
  for (const ConfigValue& value : root.items) {
    const std::string& key = value.key;
    const auto* known = std::find_if(std::begin(kFields), std::end(kFields),
                                     [&](const auto& candidate) { return key == candidate.first; });
    if (std::find(std::begin(kKept), std::end(kKept), key) != std::end(kKept)) {
      config.kept.push_back(value);
    } else if (known == std::end(kFields)) {
      unknown.push_back(quote(key));
    } else if (!is_null(value)) {
      known->second(Field(source, value), config);
      has_type = has_type || key == "distributed_type";
    }
  }
  if (!unknown.empty()) {
    std::sort(unknown.begin(), unknown.end());
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: unknown keys: {}", source, fmt::join(unknown, ", ")),
                "correct or remove them");
  }
  if (!has_type) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: distributed_type is missing", source),
                "NO, MULTI_CPU or MULTI_GPU");
  }
  if (config.distributed_type == DistributedType::kNo && config.num_processes == -1) {
    config.num_processes = 1;
  }
  return config;
}

ConfigValue to_tree(const LaunchConfig& config) {
  ConfigValue root;
  root.kind = ConfigValue::Kind::kMap;
  root.items = config.kept;
  const auto add = [&](const char* key, ConfigValue value) {
    value.key = key;
    root.items.push_back(std::move(value));
  };
  add("compute_environment", text_value("LOCAL_MACHINE"));
  std::string type = config.other_type;
  for (const auto& [candidate, name] : kTypes) {
    if (candidate == config.distributed_type) type = name;
  }
  add("distributed_type", text_value(type));
  if (config.mixed_precision) add("mixed_precision", text_value(name_of(*config.mixed_precision)));
  add("use_cpu", bool_value(config.use_cpu));
  add("debug", bool_value(config.debug));
  add("num_processes", integer_value(config.num_processes));
  add("machine_rank", integer_value(config.machine_rank));
  add("num_machines", integer_value(config.num_machines));
  if (config.gpu_ids) add("gpu_ids", text_value(*config.gpu_ids));
  if (config.main_process_ip) add("main_process_ip", text_value(*config.main_process_ip));
  if (config.main_process_port) add("main_process_port", integer_value(*config.main_process_port));
  add("rdzv_backend", text_value(config.rdzv_backend));
  add("same_network", bool_value(config.same_network));
  add("main_training_function", text_value(config.main_training_function));
  add("enable_cpu_affinity", bool_value(config.enable_cpu_affinity));
  std::sort(root.items.begin(), root.items.end(),
            [](const ConfigValue& a, const ConfigValue& b) { return a.key < b.key; });
  return root;
}

bool is_json(const fs::path& path) {
  return path.extension() == ".json";
}

}  // namespace

const char* name_of(MixedPrecision precision) {
  for (const auto& [candidate, name] : kPrecisions) {
    if (candidate == precision) return name;
  }
  return "";
}

std::optional<MixedPrecision> parse_mixed_precision(std::string_view name) {
  for (const auto& [precision, candidate] : kPrecisions) {
    if (name == candidate) return precision;
  }
  return std::nullopt;
}

fs::path default_config_file() {
  return hf_home() / "accelerate" / "default_config.yaml";
}

LaunchConfig parse_launch_config(std::string_view text, bool json, std::string_view source) {
  return from_tree(json ? parse_json_config(text, source) : parse_yaml(text, source), source);
}

LaunchConfig read_launch_config(const fs::path& path) {
  return parse_launch_config(read_file(path, kMaxFile), is_json(path), path.string());
}

std::string write_launch_config(const LaunchConfig& config, bool json) {
  const ConfigValue root = to_tree(config);
  return json ? write_json(root) : write_yaml(root);
}

void write_launch_config(const LaunchConfig& config, const fs::path& path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  write_file_atomically(path, write_launch_config(config, is_json(path)));
}

}  // namespace haul::core
