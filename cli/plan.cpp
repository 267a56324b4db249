#include <memory>

#include <fmt/format.h>

#include "cli/placement.h"
#include "cli/plan_view.h"
#include "cli/verb.h"
#include "core/base/file.h"
#include "core/base/terminal.h"
#include "core/place/plan_svg.h"

namespace haul::cli {
namespace {

constexpr Bytes kMaxPlanFile = 64 * kMiB;

struct Flags {
  PlacementFlags placement;
  std::string load;
  std::string save;
  std::string svg;
  std::string compare;
  bool json = false;
  bool explain = false;
};

Plan read(const std::string& file) {
  return read_plan(core::read_file(file, kMaxPlanFile), file);
}

void run(const Flags& flags) {
  const Profile profile = load_profile();
  const Plan plan = flags.load.empty() ? make_plan(flags.placement, profile) : read(flags.load);
  if (!flags.save.empty()) core::write_file_atomically(flags.save, write_plan(plan));
  if (!flags.svg.empty()) core::write_file_atomically(flags.svg, core::plan_svg(plan));
  if (!flags.compare.empty()) {
    const auto lines = compare(read(flags.compare), plan);
    if (lines.empty()) fmt::print("The plans are the same.\n");
    for (const std::string& line : lines) fmt::print("{}\n", line);
    return;
  }
  if (flags.json) {
    fmt::print("{}", write_plan(plan));
    return;
  }
  fmt::print("{}", plan_view(plan, core::terminal_width()));
  if (flags.explain) {
    fmt::print("\n");
    for (const std::string& sentence : explain(plan, profile)) fmt::print("{}\n", sentence);
  }
  for (const std::string& warning : plan.warnings) {
    fmt::print(stderr, "haul: warning: {}\n", warning);
  }
  if (plan.fits && !flags.explain && flags.load.empty() && !profile.measured) {
    fmt::print(stderr,
               "note: the speeds are guesses; 'haul bench machine' measures this machine's\n");
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb =
      app.add_subcommand("plan", "Plan where a model lies and runs, and how fast it will be");
  add_placement_flags(*verb, &flags->placement);
  verb->add_option("--load", flags->load, "show a saved plan instead of making one");
  verb->add_option("--save", flags->save, "write the plan to a file");
  verb->add_option("--svg", flags->svg, "draw the plan");
  verb->add_option("--compare", flags->compare, "print what changes from this saved plan");
  verb->add_flag("--json", flags->json, "print the plan as JSON");
  verb->add_flag("--explain", flags->explain, "say why, a sentence a choice");
  verb->callback([flags] { run(*flags); });
}

}  // namespace haul::cli
