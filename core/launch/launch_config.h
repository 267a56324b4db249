#pragma once

// The config file that `haul config` and the peer write and `haul launch` reads: YAML, or JSON in a
// file named .json. What concerns haul is checked and typed; what does not is kept as it is. Any
// thread.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/launch/config_value.h"

namespace haul::core {

enum class MixedPrecision { kNo, kFp16, kBf16, kFp8 };
const char* name_of(MixedPrecision precision);
std::optional<MixedPrecision> parse_mixed_precision(std::string_view name);

// In the peer's words.
enum class DistributedType { kNo, kMultiCpu, kMultiGpu, kOther };

struct LaunchConfig {
  DistributedType distributed_type = DistributedType::kNo;
  std::string other_type;  // the word, where it is kOther
  std::optional<MixedPrecision> mixed_precision;
  bool use_cpu = false;
  bool debug = false;
  int num_processes = -1;  // over all machines; -1: the command line must tell
  int machine_rank = 0;
  int num_machines = 1;
  std::optional<std::string> gpu_ids;  // "all" or "0,1"
  std::optional<std::string> main_process_ip;
  std::optional<int> main_process_port;
  std::string rdzv_backend = "static";
  bool same_network = false;
  std::string main_training_function = "main";
  bool enable_cpu_affinity = false;
  // Sections of other tools (fsdp_config, dynamo_config, tpu_env, …), in the order of the file.
  std::vector<ConfigValue> kept;
};

// default_config.yaml in the folder accelerate of HF_HOME.
std::filesystem::path default_config_file();

// Throws Error(kCorrupt) that names the file and, for YAML, the line: for all unknown keys at once,
// for values of a wrong type or out of range, for a missing distributed_type; Error(kUnsupported)
// for the config of a cloud service; Error(kNotFound) where there is no file.
LaunchConfig read_launch_config(const std::filesystem::path& path);
LaunchConfig parse_launch_config(std::string_view text, bool json, std::string_view source);

// Keys in alphabetical order, as the peer writes them.
std::string write_launch_config(const LaunchConfig& config, bool json);
// Makes the folder where it is missing; the file is there whole or not at all.
void write_launch_config(const LaunchConfig& config, const std::filesystem::path& path);

}  // namespace haul::core
