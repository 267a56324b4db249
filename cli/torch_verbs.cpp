#include "cli/torch_verbs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/idle_threads.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<const char*, const char*> kVerbs[] = {
    {"bench", "Measure this machine, and haul on it"},
    {"run", "Run a model: continue a prompt, chat, classify, embed, fill a mask"},
    {"test", "Check that the configured processes work together"},
};

}  // namespace

void continue_with_torch(char** argv) {
  let_idle_threads_sleep();
  // Beside the command in a build folder, in libexec when installed.
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& place : {folder, folder.parent_path() / "libexec/haul"}) {
    const fs::path executable = place / "haul-torch";
    if (!fs::exists(executable)) continue;
    ::execv(executable.c_str(), argv);
    throw Error(ErrorKind::kResource,
                fmt::format("{}: cannot start: {}", executable.string(), std::strerror(errno)));
  }
}

void add_torch_verbs(CLI::App& app, char** argv) {
  for (const auto& [name, description] : kVerbs) {
    CLI::App* verb = app.add_subcommand(name, description);
    // The other executable knows the flags, and --help too.
    verb->prefix_command();
    verb->set_help_flag();
    verb->callback([argv] {
      continue_with_torch(argv);
      throw Error(ErrorKind::kUnsupported, "this verb needs torch, and haul was built without it",
                  "build with -DHAUL_TORCH=ON (the default of 'make build')");
    });
  }
}

}  // namespace haul::cli
