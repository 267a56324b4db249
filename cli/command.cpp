#include "cli/command.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/terminal.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

// Flags are spelled with '-' or '_' alike: --max_memory is --max-memory.
std::vector<std::string> normalised(int argc, char** argv) {
  std::vector<std::string> arguments;
  bool flags = true;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--") flags = false;
    if (flags && argument.starts_with("--")) {
      const std::size_t end = std::min(argument.find('='), argument.size());
      std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
    }
    arguments.push_back(std::move(argument));
  }
  return {arguments.rbegin(), arguments.rend()};  // the order in which CLI11 takes them
}

void check_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string verbs;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->check_name(argv[1])) return;
    verbs += " " + verb->get_name();
  }
  throw Error(ErrorKind::kUsage, fmt::format("there is no verb '{}'", argv[1]),
              "the verbs are" + verbs);
}

void print_error(const char* message, const std::string& hint) {
  fmt::print(stderr, "{} {}\n", core::styled_stderr("haul: error:", core::Style::kRed), message);
  if (!hint.empty()) fmt::print(stderr, "  {}\n", hint);
}

}  // namespace

int run_command(int argc, char** argv, const std::function<void(CLI::App&)>& add_verbs) {
  CLI::App app{"haul runs and trains models that are bigger than the machine's memory", "haul"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "haul " HAUL_VERSION);
  add_verbs(app);
  try {
    check_verb(app, argc, argv);
    app.parse(normalised(argc, argv));
    return kDone;
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help or --version
  } catch (const CLI::ParseError& error) {
    print_error(error.what(), "see 'haul --help' or 'haul VERB --help'");
    return kUsage;
  } catch (const Error& error) {
    print_error(error.what(), error.hint());
    return error.kind() == ErrorKind::kUsage ? kUsage : kFailed;
  } catch (const std::exception& error) {
    print_error(error.what(), {});
    return kFailed;
  }
}

}  // namespace haul::cli
