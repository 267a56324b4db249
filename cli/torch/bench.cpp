#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/verb.h"
#include "core/base/file.h"
#include "core/base/terminal.h"
#include "runtime/measure/machine.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    R"(Plans rest on the machine's speeds. 'haul bench machine' measures them in some seconds and keeps
them for every plan after that; without it they are guesses. Let nothing else run beside it.

Examples:
  haul bench machine
  haul bench machine --folder /data     the disk that models are read from
  haul bench machine --json             what it found, as the file that it writes)";

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

void print(const Profile& profile) {
  print_rate("RAM, multiplied by the CPU", profile.ram_bandwidth);
  print_operations("CPU, float32", profile.cpu_operations);
  for (const auto& [index, gpu] : profile.gpus) {
    const std::string name = fmt::format("GPU {}", index);
    print_rate(name + ", its memory", gpu.memory_bandwidth);
    print_rate(name + ", from RAM", gpu.link_bandwidth);
    print_operations(name + ", bfloat16", gpu.operations);
  }
  if (!profile.gpus.empty()) {
    print_rate("RAM, by the CPU beside that", profile.help_bandwidth);
    fmt::print("  {:<34}{:>10.1f} us\n", "from the GPU to the CPU", profile.hop * 1e6);
  }
  print_rate("disk", profile.disk_bandwidth);
}

void measure(const Flags& flags) {
  runtime::MeasureOptions options;
  options.folder = flags.folder;
  if (core::stderr_is_terminal()) {
    options.on_step = [](const std::string& what) {
      fmt::print(stderr, "\r\x1b[Kmeasuring: {}", what);
    };
  }
  const Profile profile = runtime::measure_machine(options);
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

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine, so that plans know it");
  bench->footer(kFooter);
  bench->require_subcommand(1);
  CLI::App* machine = bench->add_subcommand("machine", "How fast RAM, disk, CPU and GPUs are");
  const auto flags = std::make_shared<Flags>();
  machine->add_option("--folder", flags->folder, "on the disk to measure")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  machine->add_flag("--json", flags->json, "print what is kept");
  machine->footer(kFooter);
  machine->callback([flags] { measure(*flags); });
}

}  // namespace haul::cli
