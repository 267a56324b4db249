#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/torch/bench_system.h"
#include "cli/torch/child.h"
#include "cli/torch/interrupt.h"
#include "cli/verb.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/terminal.h"
#include "haul/error.h"
#include "runtime/measure/machine.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMachineFooter =
    R"(Plans rest on the machine's speeds. 'haul bench machine' measures them in under half a
minute and keeps them for every plan after that; without it they are guesses. Let nothing else run
beside it.

Examples:
  haul bench machine
  haul bench machine --folder /data     the disk that models are read from
  haul bench machine --json             what it found, as the file that it writes)";

constexpr const char* kFooter =
    R"(Examples:
  haul bench machine                    measure the machine for plans
  haul bench decode                     tokens a second, beside the memory's limit
  haul bench offload --peer             a model that does not fit, beside Accelerate
  haul bench load --shape gpt2-xl
  haul bench throughput --peer=python3.11 --json > figures.json)";

constexpr const char* kSystemFooter =
    R"(A checkpoint of random weights is made in --folder at the first time and stays there. Each figure
is the median of all rounds; every round is a process of its own, haul's and the peer's in turns,
and both must give the same ids. limit: what the machine gave just before, by plain reads, copies and
products; planned: what haul's plan said. Let nothing else run beside it.

Shapes: llama-8b, llama-1b, llama-135m, gpt2-xl, or the path of any config.json.)";

struct Flags {
  fs::path folder = ".";
  bool json = false;
};

void print_rate(const std::string& what, double rate) {
  fmt::print("  {:<34}{:>10.1f} GB/s\n", what, rate / 1e9);
}

void print_operations(const std::string& what, double rate) {
  fmt::print("  {:<34}{:>10.2f} TFLOP/s\n", what, rate / 1e12);
}

void print_bytes(const std::string& what, Bytes bytes) {
  fmt::print("  {:<34}{:>10.1f} MB\n", what, static_cast<double>(bytes) / 1e6);
}

void print_time(const std::string& what, double seconds) {
  fmt::print("  {:<34}{:>10.1f} us\n", what, seconds * 1e6);
}

void print(const Profile& profile) {
  print_rate("RAM, multiplied by the CPU", profile.ram_bandwidth);
  print_operations("CPU, float32", profile.cpu_operations);
  print_time("CPU, a call", profile.cpu_call);
  print_time("CPU, more by input", profile.cpu_by_input);
  for (const auto& [index, gpu] : profile.gpus) {
    const std::string name = fmt::format("GPU {}", index);
    print_rate(name + ", its memory", gpu.memory_bandwidth);
    print_rate(name + ", from RAM", gpu.link_bandwidth);
    print_operations(name + ", bfloat16", gpu.operations);
    print_time(name + ", a call", gpu.call);
    print_time(name + ", more by input", gpu.by_input);
    // By 32 heads of 128, beside the bytes.
    print_time(name + ", attention to 1000 tokens", gpu.attended * 32 * 128 * 1000);
    print_bytes(name + ", the driver's", gpu.context);
    print_bytes(name + ", more for recorded passes", gpu.recorded);
  }
  if (!profile.gpus.empty() && profile.help_bandwidth > 0) {
    print_rate("RAM, by the CPU beside that", profile.help_bandwidth);
    print_rate("GPU 0, from RAM beside that", profile.help_link);
    print_time("the CPU waits for a call", profile.help_call);
  }
  if (!profile.gpus.empty()) print_time("from the GPU to the CPU", profile.hop);
  print_rate("disk", profile.disk_bandwidth);
}

Bytes run_apart(const fs::path& model, Bytes gpu) {
  // Without the profile that is there: it may be the one to be mended.
  const ChildEnd end =
      run_child({"env", "HAUL_PROFILE=" + (model / "none").string(),
                 fs::read_symlink("/proc/self/exe").string(), "run", model.string(), "--json",
                 "--temperature", "0", "--ids", "1,2,3,4,5,6,7,8", "--max-new-tokens", "8",
                 "--context", "32", "--max-memory", fmt::format("0={},cpu=16GiB", gpu)});
  if (end.exit_code != 0) throw Error(ErrorKind::kResource, end.err);
  const core::Json planned = core::parse_json(end.out, "haul run").at("stats").at("planned");
  if (!planned.contains("GPU 0")) {
    throw Error(ErrorKind::kResource, "haul run: nothing of a model was planned for GPU 0");
  }
  return planned["GPU 0"].get<Bytes>();
}

Profile measured(const runtime::MeasureOptions& options) {
  try {
    return runtime::measure_machine(options);
  } catch (const Error&) {
    end_if_interrupted();
    throw;
  }
}

void measure(const Flags& flags) {
  runtime::MeasureOptions options;
  options.folder = flags.folder;
  catch_interrupt();  // so that the models' files go
  options.on_step = [](const std::string& what) {
    if (interrupted()) throw Error(ErrorKind::kResource, "interrupted");
    if (core::stderr_is_terminal()) fmt::print(stderr, "\r\x1b[Kmeasuring: {}", what);
  };
  options.run_apart = run_apart;
  const Profile profile = measured(options);
  end_if_interrupted();
  if (core::stderr_is_terminal()) fmt::print(stderr, "\r\x1b[K");
  const std::string text = write_profile(profile);
  const fs::path file = profile_path();
  fs::create_directories(file.parent_path());
  core::write_file_atomically(file, text);
  if (flags.json) {
    fmt::print("{}", text);
    return;
  }
  print(profile);
  fmt::print("kept in {}: plans know this machine now\n", file.string());
}

void add_system(CLI::App& bench, const char* name, const char* description,
                void (*run)(const BenchOptions&)) {
  CLI::App* verb = bench.add_subcommand(name, description);
  const auto options = std::make_shared<BenchOptions>();
  verb->add_flag("--peer{python3}", options->peer,
                 "beside Transformers and Accelerate; --peer=PYTHON: the Python that has them");
  verb->add_option("--shape", options->shape,
                   "of the model; default: llama-8b with a large GPU, else a smaller one");
  verb->add_option("--folder", options->folder,
                   "for the checkpoint; default: haul/bench in the user's cache folder");
  verb->add_option("--rounds", options->rounds, "of which the median is taken")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "print the figures of all rounds as JSON");
  verb->footer(kSystemFooter);
  verb->callback([options, run] { run(*options); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine, and haul on it");
  bench->footer(kFooter);
  bench->require_subcommand(1);
  CLI::App* machine = bench->add_subcommand("machine", "How fast RAM, disk, CPU and GPUs are");
  const auto flags = std::make_shared<Flags>();
  machine->add_option("--folder", flags->folder, "on the disk to measure")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  machine->add_flag("--json", flags->json, "print what is kept");
  machine->footer(kMachineFooter);
  machine->callback([flags] { measure(*flags); });
  add_system(*bench, "offload", "Tokens a second of a model that does not fit", bench_offload);
  add_system(*bench, "load", "Seconds to load a model, and to its first token", bench_load);
  add_system(*bench, "decode", "Tokens a second of a model that fits", bench_decode);
  add_system(*bench, "throughput", "Tokens a second of many prompts at once", bench_throughput);
}

}  // namespace haul::cli
