#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "cli/torch/start_processes.h"
#include "cli/verb.h"
#include "core/launch/rank_environment.h"
#include "haul/error.h"
#include "haul/torch/partial_state.h"

namespace haul::cli {
namespace {

constexpr const char* kFooter =
    R"(Starts the processes that the config file tells of, or as many as asked for, and has them split,
gather, sum and wait together.

Examples:
  haul test                        as 'haul config' set it up
  haul test --num_processes 2 --cpu)";

struct Flags {
  std::string config_file;
  std::string num_processes;
  bool cpu = false;
};

void expect(const PartialState& state, bool right, const char* what) {
  if (right) return;
  throw Error(ErrorKind::kInternal,
              fmt::format("process {} of {}: {} gave a wrong result", state.process_index(),
                          state.num_processes(), what));
}

// What each of the processes does.
void take_part(bool cpu) {
  PartialStateOptions options;
  options.cpu = cpu;
  const PartialState state(options);
  const std::int64_t world = state.num_processes();
  const std::int64_t rank = state.process_index();
  state.print(
      fmt::format("{} processes, {} on this machine, {} on {}", world, state.local_num_processes(),
                  state.backend().empty() ? "alone" : state.backend(), state.device().str()));
  const at::Tensor number =
      at::full({3}, rank, at::TensorOptions(at::kLong).device(state.device()));
  const at::Tensor all = state.gather(number).to(at::kCPU);
  expect(state, all.equal(at::arange(world).repeat_interleave(3)), "gather");
  const std::int64_t sum = state.reduce(number, Reduction::kSum)[0].item<std::int64_t>();
  expect(state, sum == world * (world - 1) / 2, "reduce");
  expect(state, state.broadcast(number, world - 1)[0].item<std::int64_t>() == world - 1,
         "broadcast");
  for (std::int64_t total = 0; total <= 2 * world + 1; ++total) {
    std::vector<std::int64_t> items(static_cast<std::size_t>(total));
    std::iota(items.begin(), items.end(), 0);
    for (const bool padding : {false, true}) {
      const auto part = state.split_between_processes(items, padding);
      expect(state, state.gather_split(part.items, part.share) == items, "split_between_processes");
    }
  }
  state.wait_for_everyone();
  state.print("all is well");
}

// Does not return.
void launch(const Flags& flags) {
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--config_file", flags.config_file);
  add("--num_processes", flags.num_processes);
  if (!flags.cpu) start_processes(words, {"test"});
  words.emplace_back("--cpu");
  start_processes(words, {"test", "--cpu"});
}

}  // namespace

void add_test(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("test", "Check that the configured processes work together");
  verb->footer(kFooter);
  verb->add_option("--config-file", flags->config_file,
                   "the config to use instead of the usual one");
  verb->add_option("--num-processes", flags->num_processes, "on all machines together");
  verb->add_flag("--cpu", flags->cpu, "use no GPU");
  verb->callback([flags] {
    if (core::read_rank_environment().source == core::RankSource::kAlone) launch(*flags);
    take_part(flags->cpu);
  });
}

}  // namespace haul::cli
