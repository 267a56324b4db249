#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/verb.h"
#include "core/base/machine.h"
#include "core/launch/cpu_topology.h"
#include "core/launch/launch_config.h"
#include "core/launch/launch_plan.h"
#include "core/launch/launcher.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter = R"(haul launch [FLAGS] PROGRAM [ITS ARGUMENTS]

Examples:
  haul launch --num_processes 4 ./my_program --its-own flags
  haul launch --num_processes 2 --cpu train.py --epochs 3      a Python script
  haul launch --num_processes 2 -m my_package.train            a Python module
  haul launch --num_processes 8 --prefix --max_restarts 2 ./my_program
  haul launch --num_processes 16 --num_machines 2 --machine_rank 0 \
      --main_process_ip 10.0.0.1 --main_process_port 29500 ./my_program

A flag comes before the config file ('haul config'), which comes before a guess. The exit code is
that of the first rank that failed, 128 + N where signal N ended it.)";

constexpr int kCannotExecute = 126;
constexpr int kNoSuchProgram = 127;

struct Flags {
  core::LaunchRequest request;
  core::LaunchOptions options;
  std::string config_file;
  std::string mixed_precision;
  std::string log_dir;
  int tee = 0;
  double grace = 15;
  double machine_timeout = 300;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<long long>(seconds * 1000));
}

std::optional<core::LaunchConfig> read_config(const Flags& flags) {
  if (!flags.config_file.empty()) return core::read_launch_config(flags.config_file);
  const fs::path usual = core::default_config_file();
  std::error_code ignored;
  // Like the peer: --cpu alone means this machine's CPU, whatever the file says.
  if (flags.request.cpu || !fs::is_regular_file(usual, ignored)) return std::nullopt;
  return core::read_launch_config(usual);
}

core::LaunchMachine this_machine() {
  const core::Os os = core::this_os();
  core::LaunchMachine machine;
  machine.gpus = static_cast<int>(core::read_machine(os).gpus.size());
  machine.cores = static_cast<int>(core::read_cores(os.root, core::allowed_cpus()).size());
  machine.variables = os.variable;
  return machine;
}

void tell_guesses(const core::LaunchPlan& plan) {
  if (plan.guesses.empty()) return;
  fmt::print(stderr, "haul: not given, so guessed: {} (flags or 'haul config' tell otherwise)\n",
             fmt::join(plan.guesses, ", "));
}

void check_script(const core::LaunchRequest& request) {
  const std::string& program = request.program.front();
  std::error_code ignored;
  if (request.module || request.no_python || !program.ends_with(".py")) return;
  if (!fs::exists(program, ignored)) {
    throw Error(ErrorKind::kNotFound, fmt::format("cannot start '{}': no such script", program));
  }
}

int run(Flags& flags) {
  if (flags.request.program.front().starts_with('-')) {
    throw Error(ErrorKind::kUsage,
                fmt::format("haul launch has no flag {}", flags.request.program.front()),
                "flags of the program come after its name; see 'haul launch --help'");
  }
  if (!flags.mixed_precision.empty()) {
    flags.request.mixed_precision = core::parse_mixed_precision(flags.mixed_precision);
  }
  if (!flags.log_dir.empty()) flags.options.log_dir = flags.log_dir;
  if (flags.tee != 0 && flags.log_dir.empty()) {
    throw Error(ErrorKind::kUsage, "--tee needs --log_dir",
                "it shows on the terminal, too, what goes to the logs");
  }
  flags.options.tee_stdout = (flags.tee & 1) != 0;
  flags.options.tee_stderr = (flags.tee & 2) != 0;
  flags.options.grace = milliseconds(flags.grace);
  flags.options.machine_timeout = milliseconds(flags.machine_timeout);
  const core::LaunchPlan plan =
      core::plan_launch(flags.request, read_config(flags), this_machine());
  tell_guesses(plan);
  std::fflush(nullptr);
  try {
    check_script(flags.request);
    const core::LaunchEnd end = core::launch(plan, flags.options);
    // A shell sees that a signal ended this, as it would of the program itself.
    if (end.signal != 0) {
      std::signal(end.signal, SIG_DFL);
      std::raise(end.signal);
      return 128 + end.signal;
    }
    return end.exit_code;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotFound && error.kind() != ErrorKind::kUnsupported) throw;
    print_error(error);
    return error.kind() == ErrorKind::kNotFound ? kNoSuchProgram : kCannotExecute;
  }
}

void add_flags(CLI::App& verb, Flags& flags) {
  core::LaunchRequest& request = flags.request;
  constexpr int kMany = 1 << 20;
  verb.add_option("--config-file", flags.config_file, "the config to use instead of the usual one");
  verb.add_option("--num-processes", request.num_processes, "on all machines together")
      ->check(CLI::Range(1, kMany));
  verb.add_option("--num-machines", request.num_machines)->check(CLI::Range(1, kMany));
  verb.add_option("--machine-rank", request.machine_rank, "of this machine, from 0")
      ->check(CLI::Range(0, kMany));
  verb.add_option("--main-process-ip", request.main_process_ip, "of the machine of rank 0");
  verb.add_option("--main-process-port", request.main_process_port,
                  "where rank 0 listens; 0, or none on one machine: a free one")
      ->check(CLI::Range(0, 65535));
  verb.add_flag("--cpu", request.cpu, "use no GPU");
  verb.add_flag("--multi-gpu", request.multi_gpu, "several GPUs, whatever the config says");
  verb.add_option("--gpu-ids", request.gpu_ids, "like 0,1, or all: CUDA_VISIBLE_DEVICES");
  verb.add_option("--num-cpu-threads-per-process", request.num_cpu_threads_per_process,
                  "OMP_NUM_THREADS of each")
      ->check(CLI::Range(1, kMany));
  verb.add_flag("--enable-cpu-affinity", request.enable_cpu_affinity,
                "pin each process to cores of its own, near one memory");
  verb.add_option("--mixed-precision", flags.mixed_precision, "no, fp16, bf16 or fp8")
      ->check(CLI::IsMember({"no", "fp16", "bf16", "fp8"}));
  verb.add_flag("--debug", request.debug, "ACCELERATE_DEBUG_MODE");
  verb.add_flag("-m,--module", request.module, "PROGRAM is a Python module");
  verb.add_flag("--no-python", request.no_python, "start a .py file as it is");
  verb.add_option("--max-restarts", flags.options.max_restarts,
                  "start all processes again after a failure, so many times")
      ->check(CLI::Range(0, kMany));
  verb.add_option("--log-dir", flags.log_dir,
                  "stdout and stderr of each process to files in a new folder there");
  verb.add_option("-t,--tee", flags.tee,
                  "with --log_dir, show on the terminal, too: 1 stdout, 2 stderr, 3 both")
      ->check(CLI::Range(0, 3));
  verb.add_flag("--prefix", flags.options.prefix, "the rank before each line");
  verb.add_option("--grace", flags.grace,
                  "seconds between asking processes to end and killing them (15)")
      ->check(CLI::Range(0.0, 86400.0));
  verb.add_option("--machine-timeout", flags.machine_timeout,
                  "seconds to wait for the other machines (300)")
      ->check(CLI::Range(0.0, 86400.0));
}

}  // namespace

void add_launch(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("launch", "Start PROGRAM as several processes");
  verb->footer(kFooter);
  add_flags(*verb, *flags);
  // Everything from the program's name on is the program's.
  verb->prefix_command();
  verb->callback([flags, verb] {
    flags->request.program = verb->remaining();
    if (flags->request.program.empty()) {
      throw Error(ErrorKind::kUsage, "no program to launch",
                  "haul launch [FLAGS] PROGRAM [ITS ARGUMENTS]");
    }
    const int code = run(*flags);
    if (code != 0) throw ExitCode{code};
  });
}

}  // namespace haul::cli
