#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/config_questions.h"
#include "cli/verb.h"
#include "core/base/machine.h"
#include "core/launch/launch_config.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter = R"(Examples:
  haul config                                  asks, and writes the file that 'haul launch' reads
  haul config default --mixed_precision bf16   asks nothing
  haul config update --config_file my.yaml     writes a file anew, with all of today's keys

The file is default_config.yaml in the folder accelerate of HF_HOME; a name that ends with .json
makes it JSON.)";

struct Flags {
  std::string config_file;
  std::string mixed_precision = "no";
  bool json = false;

  fs::path file() const {
    return config_file.empty() ? core::default_config_file() : fs::path(config_file);
  }
};

int count_gpus() {
  return static_cast<int>(core::read_machine(core::this_os()).gpus.size());
}

std::optional<std::string> ask_terminal(const std::string& text) {
  fmt::print(stderr, "{}", text);
  std::string line;
  if (!std::getline(std::cin, line)) {
    fmt::print(stderr, "\n");
    return std::nullopt;
  }
  return line;
}

void save(const core::LaunchConfig& config, const Flags& flags) {
  core::write_launch_config(config, flags.file());
  if (flags.json) {
    fmt::print("{}", core::write_launch_config(config, true));
  } else {
    fmt::print("{}\n", flags.file().string());
  }
}

void ask(const Flags& flags) {
  const int gpus = count_gpus();
  core::LaunchConfig before = default_config(gpus);
  before.num_processes = -1;
  std::error_code ignored;
  if (fs::exists(flags.file(), ignored)) before = core::read_launch_config(flags.file());
  save(ask_config(before, gpus, ask_terminal), flags);
}

void write_default(const Flags& flags) {
  std::error_code ignored;
  if (fs::exists(flags.file(), ignored)) {
    throw Error(ErrorKind::kResource, fmt::format("{}: is there already", flags.file().string()),
                "'haul config' changes it, --config_file names another");
  }
  core::LaunchConfig config = default_config(count_gpus());
  config.mixed_precision = core::parse_mixed_precision(flags.mixed_precision);
  save(config, flags);
}

void add_common(CLI::App* verb, const std::shared_ptr<Flags>& flags) {
  verb->add_option("--config-file", flags->config_file, "instead of the usual one");
  verb->add_flag("--json", flags->json, "print the config as JSON, not the name of its file");
}

}  // namespace

void add_config(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("config", "Write the file that 'haul launch' reads");
  verb->footer(kFooter);
  verb->require_subcommand(0, 1);
  add_common(verb, flags);
  verb->callback([flags, verb] {
    if (verb->get_subcommands().empty()) ask(*flags);
  });

  CLI::App* usual = verb->add_subcommand("default", "Ask nothing");
  add_common(usual, flags);
  usual->add_option("--mixed-precision", flags->mixed_precision, "no, fp16, bf16 or fp8 (no)")
      ->check(CLI::IsMember({"no", "fp16", "bf16", "fp8"}));
  usual->callback([flags] { write_default(*flags); });

  CLI::App* update = verb->add_subcommand("update", "Write a file anew, with all of today's keys");
  add_common(update, flags);
  update->callback([flags] { save(core::read_launch_config(flags->file()), *flags); });
}

}  // namespace haul::cli
