#include "cli/command.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
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
std::string normalised(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const std::size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return argument;
}

const CLI::App* find_verb(const CLI::App& app, const char* name) {
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->check_name(name)) return verb;
  }
  return nullptr;
}

// Where the command line of another program begins in that of a verb that starts one: behind the
// verb's own flags and their values.
int find_program(const CLI::App& verb, int argc, char** argv) {
  int i = 2;
  while (i < argc && argv[i][0] == '-' && argv[i] != std::string_view("--")) {
    const std::string flag = normalised(argv[i]);
    const CLI::Option* option = verb.get_option_no_throw(flag.substr(0, flag.find('=')));
    if (option == nullptr) break;
    const bool takes_next = option->get_items_expected_max() > 0 && flag.find('=') == flag.npos;
    i += takes_next ? 2 : 1;
  }
  return std::min(i, argc);
}

// In the order in which CLI11 takes them.
std::vector<std::string> arguments_for(const CLI::App& app, int argc, char** argv) {
  const CLI::App* verb = argc > 1 ? find_verb(app, argv[1]) : nullptr;
  const bool starts = verb != nullptr && verb->get_prefix_command();
  const int program = starts ? find_program(*verb, argc, argv) : argc;
  std::vector<std::string> arguments;
  bool flags = true;
  for (int i = 1; i < argc; ++i) {
    const bool mark = argv[i] == std::string_view("--");
    if (i == program && mark) continue;
    flags = flags && i < program && !mark;
    arguments.push_back(flags ? normalised(argv[i]) : argv[i]);
  }
  return {arguments.rbegin(), arguments.rend()};
}

// Else CLI11 says that something is missing, and not what is wrong.
void check_verbs(const CLI::App& app, int argc, char** argv) {
  std::string said = "haul";
  const CLI::App* within = &app;
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    const auto verbs = within->get_subcommands(nullptr);
    if (verbs.empty()) return;
    const CLI::App* const verb = find_verb(*within, argv[i]);
    if (verb == nullptr) {
      std::string names;
      for (const CLI::App* each : verbs) names += " " + each->get_name();
      throw Error(ErrorKind::kUsage,
                  i == 1 ? fmt::format("there is no verb '{}'", argv[i])
                         : fmt::format("there is no '{} {}'", said, argv[i]),
                  i == 1 ? "the verbs are" + names : fmt::format("{} has{}", said, names));
    }
    said += fmt::format(" {}", argv[i]);
    within = verb;
  }
}

void print_error(const char* message, const std::string& hint) {
  fmt::print(stderr, "{} {}\n", core::styled_stderr("haul: error:", core::Style::kRed), message);
  if (!hint.empty()) fmt::print(stderr, "  {}\n", hint);
}

}  // namespace

void print_error(const Error& error) {
  print_error(error.what(), error.hint());
}

int run_command(int argc, char** argv, const std::function<void(CLI::App&)>& add_verbs) {
  CLI::App app{"haul runs and trains models that are bigger than the machine's memory", "haul"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "haul " HAUL_VERSION);
  add_verbs(app);
  try {
    check_verbs(app, argc, argv);
    app.parse(arguments_for(app, argc, argv));
    return kDone;
  } catch (const ExitCode& code) {
    return code.value;
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help or --version
  } catch (const CLI::ParseError& error) {
    print_error(error.what(), "see 'haul --help' or 'haul VERB --help'");
    return kUsage;
  } catch (const Error& error) {
    print_error(error);
    return error.kind() == ErrorKind::kUsage ? kUsage : kFailed;
  } catch (const std::exception& error) {
    print_error(error.what(), {});
    return kFailed;
  }
}

}  // namespace haul::cli
