#include "core/launch/launch_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "haul/error.h"

namespace haul::core {
namespace {

[[noreturn]] void usage(const std::string& message, const std::string& hint = {}) {
  throw Error(ErrorKind::kUsage, message, hint);
}

std::string upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

// The flag, else the config's value, else nothing.
template <typename T, typename Member>
std::optional<T> chosen(const std::optional<T>& flag, const std::optional<LaunchConfig>& config,
                        Member member) {
  if (flag) return flag;
  if (config) return (*config).*member;
  return std::nullopt;
}

// Number of ids in "0,1"; nothing for all.
std::optional<int> count_gpu_ids(const std::optional<std::string>& ids) {
  if (!ids || *ids == "all") return std::nullopt;
  const bool wrong =
      ids->empty() || ids->front() == ',' || ids->back() == ',' || ids->find(",,") != ids->npos;
  if (wrong) usage(fmt::format("--gpu_ids {} names no GPUs", quote(*ids)), "like 0,1 or all");
  return 1 + static_cast<int>(std::count(ids->begin(), ids->end(), ','));
}

void check_flags(const LaunchRequest& request, const std::optional<LaunchConfig>& config) {
  if (request.program.empty()) usage("no program to launch");
  if (request.cpu && request.multi_gpu) usage("--cpu and --multi_gpu exclude each other");
  if (request.module && request.no_python) usage("--module and --no_python exclude each other");
  if (request.multi_gpu && request.num_processes.value_or(2) < 2) {
    usage("--multi_gpu needs at least 2 processes");
  }
  if (config && config->distributed_type == DistributedType::kOther && !request.cpu &&
      !request.multi_gpu) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("the config's distributed_type is {}", config->other_type),
                "haul launches NO, MULTI_CPU and MULTI_GPU; --multi_gpu or --cpu overrides it");
  }
}

std::vector<std::string> command_of(const LaunchRequest& request, const LaunchMachine& machine) {
  std::vector<std::string> command;
  const bool script = request.program.front().ends_with(".py") && !request.no_python;
  // Unbuffered, so that the last lines of one that is killed are not lost.
  const std::string python = machine.variables("PYTHON_EXEC").value_or("python3");
  if (script || request.module) command = {python, "-u"};
  if (request.module) command.emplace_back("-m");
  command.insert(command.end(), request.program.begin(), request.program.end());
  return command;
}

void plan_machines(const LaunchRequest& request, const std::optional<LaunchConfig>& config,
                   LaunchPlan& plan) {
  const auto address =
      request.main_process_ip || !config ? request.main_process_ip : config->main_process_ip;
  const auto port =
      request.main_process_port || !config ? request.main_process_port : config->main_process_port;
  plan.master_addr = address.value_or(plan.master_addr);
  plan.master_port = port.value_or(0);
  if (plan.num_machines == 1) {
    if (request.machine_rank.value_or(0) != 0) {
      usage(fmt::format("--machine_rank {} with one machine", *request.machine_rank),
            "--num_machines tells how many there are");
    }
    return;
  }
  if (!address) usage("several machines need --main_process_ip");
  if (plan.master_port == 0) {
    usage("several machines need --main_process_port",
          "a port that is free on the machine of rank 0, the same on all machines");
  }
  const auto rank = chosen(request.machine_rank, config, &LaunchConfig::machine_rank);
  if (!rank) usage("several machines need --machine_rank");
  if (*rank >= plan.num_machines) {
    usage(fmt::format("--machine_rank {} with {} machines", *rank, plan.num_machines),
          fmt::format("0 to {}", plan.num_machines - 1));
  }
  plan.machine_rank = *rank;
  if (plan.world % plan.num_machines != 0) {
    usage(fmt::format("--num_processes {} cannot be shared equally by {} machines", plan.world,
                      plan.num_machines),
          "it counts the processes of all machines");
  }
}

int plan_world(const LaunchRequest& request, const std::optional<LaunchConfig>& config,
               const LaunchMachine& machine, std::optional<int> gpu_ids, LaunchPlan& plan) {
  if (request.num_processes) return *request.num_processes;
  if (config) {
    if (config->num_processes > 0) return config->num_processes;
    usage("the config leaves the number of processes open", "give --num_processes");
  }
  int world = std::max(1, gpu_ids.value_or(machine.gpus)) * plan.num_machines;
  if (request.cpu) world = plan.num_machines;
  plan.guesses.push_back(fmt::format("--num_processes {}", world));
  return world;
}

// The peer's words for its compiler, from the section of the config.
void add_dynamo(const std::optional<LaunchConfig>& config, EnvironmentVariables& variables) {
  EnvironmentVariables values{{"backend", "NO"},
                              {"mode", "default"},
                              {"use_fullgraph", "False"},
                              {"use_dynamic", "False"},
                              {"use_regional_compilation", "False"}};
  const auto take = [&](const ConfigValue& value) {
    const std::string key = value.key.substr(value.key.starts_with("dynamo_") ? 7 : 0);
    for (auto& [name, text] : values) {
      if (name != key || value.kind != ConfigValue::Kind::kScalar || is_null(value)) continue;
      const auto flag = as_bool(value);
      text = name.starts_with("use_") && flag ? (*flag ? "True" : "False") : value.text;
    }
  };
  if (config) {
    for (const ConfigValue& section : config->kept) {
      if (section.key == "dynamo_backend") take(section);
      if (section.key != "dynamo_config") continue;
      for (const ConfigValue& value : section.items) take(value);
    }
  }
  for (const auto& [name, text] : values) {
    variables.emplace_back("ACCELERATE_DYNAMO_" + upper(name),
                           name == "backend" ? upper(text) : text);
  }
}

std::string threads_of(const LaunchRequest& request, const LaunchMachine& machine, bool cpu,
                       LaunchPlan& plan) {
  if (request.num_cpu_threads_per_process) {
    return std::to_string(*request.num_cpu_threads_per_process);
  }
  const auto inherited = machine.variables("OMP_NUM_THREADS");
  if (inherited && !inherited->empty()) return *inherited;
  const int share = cpu ? std::max(1, machine.cores / plan.local_world) : 1;
  if (share > 1) plan.guesses.push_back(fmt::format("--num_cpu_threads_per_process {}", share));
  return std::to_string(share);
}

}  // namespace

LaunchPlan plan_launch(const LaunchRequest& request, const std::optional<LaunchConfig>& config,
                       const LaunchMachine& machine) {
  check_flags(request, config);
  LaunchPlan plan;
  plan.command = command_of(request, machine);
  plan.num_machines = chosen(request.num_machines, config, &LaunchConfig::num_machines).value_or(1);
  const auto gpu_ids = request.gpu_ids || !config ? request.gpu_ids : config->gpu_ids;
  const auto gpus = count_gpu_ids(gpu_ids);
  plan.world = plan_world(request, config, machine, gpus, plan);
  if (!config && !request.num_machines) plan.guesses.emplace_back("--num_machines 1");
  if (plan.world < 1 || plan.num_machines < 1) {
    usage(fmt::format("{} processes on {} machines", plan.world, plan.num_machines));
  }
  const bool multi_gpu =
      request.multi_gpu ||
      (config && config->distributed_type == DistributedType::kMultiGpu && !request.cpu);
  if (multi_gpu && plan.num_machines == 1 && gpus.value_or(2) < 2) {
    usage(fmt::format("--gpu_ids {} is one GPU, and several are to be used", *gpu_ids),
          "name at least two, or all");
  }
  plan_machines(request, config, plan);
  plan.local_world = plan.world / plan.num_machines;

  const bool cpu = request.cpu || (config && config->use_cpu);
  auto precision = request.mixed_precision;
  if (!precision && config) precision = config->mixed_precision;
  if (!precision && !config) plan.guesses.emplace_back("--mixed_precision no");
  plan.pin_cores = request.enable_cpu_affinity || (config && config->enable_cpu_affinity);

  EnvironmentVariables& variables = plan.variables;
  variables.emplace_back("ACCELERATE_MIXED_PRECISION",
                         name_of(precision.value_or(MixedPrecision::kNo)));
  variables.emplace_back("ACCELERATE_USE_CPU", cpu ? "True" : "False");
  add_dynamo(config, variables);
  if (request.debug || (config && config->debug)) {
    variables.emplace_back("ACCELERATE_DEBUG_MODE", "true");
  }
  if (gpus) variables.emplace_back("CUDA_VISIBLE_DEVICES", *gpu_ids);
  if (plan.pin_cores) variables.emplace_back("ACCELERATE_CPU_AFFINITY", "1");
  // Intel's OpenMP would put the threads of all ranks on the same cores, were they not pinned.
  if (cpu && (plan.local_world == 1 || plan.pin_cores)) {
    variables.emplace_back("KMP_AFFINITY", "granularity=fine,compact,1,0");
    variables.emplace_back("KMP_BLOCKTIME", "1");
  }
  if (!machine.variables("TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
    variables.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  }
  variables.emplace_back("OMP_NUM_THREADS", threads_of(request, machine, cpu, plan));
  return plan;
}

EnvironmentVariables rank_variables(const LaunchPlan& plan, int local_rank, int port, int restart,
                                    int max_restarts) {
  const std::string rank = std::to_string(plan.machine_rank * plan.local_world + local_rank);
  const std::string world = std::to_string(plan.world);
  return {{"RANK", rank},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"WORLD_SIZE", world},
          {"LOCAL_WORLD_SIZE", std::to_string(plan.local_world)},
          {"GROUP_RANK", std::to_string(plan.machine_rank)},
          {"GROUP_WORLD_SIZE", std::to_string(plan.num_machines)},
          {"ROLE_NAME", "default"},
          {"ROLE_RANK", rank},
          {"ROLE_WORLD_SIZE", world},
          {"MASTER_ADDR", plan.master_addr},
          {"MASTER_PORT", std::to_string(port)},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(restart)},
          {"TORCHELASTIC_MAX_RESTARTS", std::to_string(max_restarts)},
          {"TORCHELASTIC_RUN_ID", "none"},
          // Rank 0 opens the store itself.
          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
}

}  // namespace haul::core
