#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "cli/verb.h"
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
      for (std::size_t k = 0; k < end; ++k) {
        if (argument[k] == '_') argument[k] = '-';
      }
    }
    arguments.push_back(std::move(argument));
  }
  return {arguments.rbegin(), arguments.rend()};  // the order in which CLI11 takes them
}

int run(int argc, char** argv) {
  CLI::App app{"haul runs and trains models that are bigger than the machine's memory", "haul"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "haul 0.1.0");
  add_map(app);
  add_tree(app);
  try {
    app.parse(normalised(argc, argv));
    return kDone;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  } catch (const Error& error) {
    fmt::print(stderr, "{} {}\n", core::styled_stderr("haul: error:", core::Style::kRed),
               error.what());
    if (!error.hint().empty()) fmt::print(stderr, "  {}\n", error.hint());
    return error.kind() == ErrorKind::kUsage ? kUsage : kFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "haul: error: {}\n", error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace haul::cli

int main(int argc, char** argv) {
  return haul::cli::run(argc, argv);
}
