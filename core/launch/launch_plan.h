#pragma once

// What a launch will do, decided before anything is started: flags over the config file over
// guesses, and the environment of each rank. Pure. Any thread.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/launch/launch_config.h"
#include "core/launch/rank_environment.h"

namespace haul::core {

// The flags as they were given.
struct LaunchRequest {
  std::optional<int> num_processes;  // over all machines
  std::optional<int> num_machines;
  std::optional<int> machine_rank;
  std::optional<std::string> main_process_ip;
  std::optional<int> main_process_port;  // 0: any free one
  std::optional<std::string> gpu_ids;    // "all" or "0,1"
  std::optional<int> num_cpu_threads_per_process;
  std::optional<MixedPrecision> mixed_precision;
  bool cpu = false;
  bool multi_gpu = false;
  bool debug = false;
  bool enable_cpu_affinity = false;
  bool module = false;     // the program is a Python module
  bool no_python = false;  // the program is started as it is, whatever its name
  std::vector<std::string> program;
};

// What the decision asks of this machine.
struct LaunchMachine {
  int gpus = 0;
  int cores = 1;        // whole ones, that this process may use
  Variables variables;  // its environment
};

using EnvironmentVariables = std::vector<std::pair<std::string, std::string>>;

struct LaunchPlan {
  std::vector<std::string> command;
  int world = 1;
  int local_world = 1;
  int num_machines = 1;
  int machine_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: any free one
  bool pin_cores = false;
  EnvironmentVariables variables;    // the same for all ranks
  std::vector<std::string> guesses;  // "--num_processes 1": what neither flag nor file told
};

// Throws Error(kUsage) for flags that contradict each other or the config, Error(kUnsupported) for
// a config whose processes are started by other means (FSDP, DeepSpeed, TPU, …).
LaunchPlan plan_launch(const LaunchRequest& request, const std::optional<LaunchConfig>& config,
                       const LaunchMachine& machine);

// What rank `local_rank` of this machine gets besides plan.variables.
EnvironmentVariables rank_variables(const LaunchPlan& plan, int local_rank, int port, int restart,
                                    int max_restarts);

}  // namespace haul::core
