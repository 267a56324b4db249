#include "cli/torch/bench_sides.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/idle_threads.h"
#include "cli/torch/bench_peer.h"
#include "cli/torch/child.h"
#include "core/base/file.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

void drop_from_page_cache(const fs::path& folder) {
  std::error_code missing;
  for (const auto& item : fs::directory_iterator(folder, missing)) {
    if (!item.is_regular_file()) continue;
    const int file = ::open(item.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    ::fdatasync(file);  // what is not written yet stays
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

ChildEnd run_side(const char* side, const BenchWork& work, std::vector<std::string> command) {
  if (work.cold) {
    for (const fs::path& folder : {work.model, work.folder / "haul", work.folder / "peer"}) {
      drop_from_page_cache(folder);
    }
  }
  std::optional<MemoryGroup> group;
  if (work.memory) group.emplace(*work.memory);
  ChildEnd end = run_child(std::move(command), group ? &*group : nullptr);
  if (end.exit_code == 0) return end;
  throw Error(ErrorKind::kResource, fmt::format("{} ended with {}: {}", side, end.exit_code,
                                                end.err.empty() ? "it said nothing" : end.err));
}

// The last line that a side prints says all.
core::Json last_line(const std::string& out, const char* side) {
  std::istringstream lines(out);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  return core::parse_json(last, side);
}

}  // namespace

void bring_into_page_cache(const fs::path& folder) {
  std::vector<char> piece(4 * kMiB);
  for (const auto& item : fs::directory_iterator(folder)) {
    if (!item.is_regular_file()) continue;
    std::ifstream file(item.path(), std::ios::binary);
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size()))) {
    }
  }
}

std::string budget_text(const std::map<std::string, Bytes>& budget) {
  std::vector<std::string> parts;
  parts.reserve(budget.size());
  for (const auto& [device, bytes] : budget) parts.push_back(fmt::format("{}={}", device, bytes));
  return fmt::format("{}", fmt::join(parts, ","));
}

std::int64_t context_of(const BenchWork& work) {
  return static_cast<std::int64_t>(work.prompts.front().size()) + work.new_tokens;
}

double BenchRun::rate_of_answers(std::int64_t tokens) const {
  const auto count = static_cast<double>(ids.size());
  const double after_first = count * static_cast<double>(tokens - 1) / token_rate;
  return count * static_cast<double>(tokens) / (first_token + after_first);
}

BenchRun run_haul(const BenchWork& work, const fs::path& profile) {
  const fs::path prompts = work.folder / "prompts.jsonl";
  std::string text;
  for (const auto& ids : work.prompts) text += core::Json{{"ids", ids}}.dump() + "\n";
  core::write_file_atomically(prompts, text);
  std::vector<std::string> command{"env",
                                   "HAUL_PROFILE=" + profile.string(),
                                   fs::read_symlink("/proc/self/exe").string(),
                                   "run",
                                   work.model.string(),
                                   "--json",
                                   "--temperature",
                                   "0",
                                   "--file",
                                   prompts.string(),
                                   "--batch",
                                   std::to_string(work.prompts.size()),
                                   "--context",
                                   std::to_string(context_of(work)),
                                   "--max-new-tokens",
                                   std::to_string(work.new_tokens),
                                   "--offload-folder",
                                   (work.folder / "haul").string()};
  if (!work.budget.empty()) {
    command.insert(command.end(), {"--max-memory", budget_text(work.budget)});
  }
  const ChildEnd end = run_side("haul run", work, std::move(command));
  BenchRun run;
  std::istringstream lines(end.out);
  core::Json answer;
  for (std::string line; std::getline(lines, line);) {
    answer = core::parse_json(line, "haul run");
    run.ids.push_back(answer.at("ids").get<std::vector<TokenId>>());
  }
  const core::Json& stats = answer.at("stats");
  run.start = end.first_output;
  run.load = stats.at("load_s");
  run.first_token = stats.at("first_token_s");
  run.token_rate = stats.at("tokens_per_s");
  run.planned_rate = stats.at("predicted").at("tokens_per_s");
  return run;
}

BenchRun run_peer(const BenchWork& work, const std::string& python) {
  core::Json spec{{"prompts", work.prompts},
                  {"new", work.new_tokens},
                  {"device", work.on_gpu ? "cuda" : "cpu"},
                  {"offload_folder", (work.folder / "peer").string()}};
  if (!work.budget.empty()) spec["max_memory"] = work.budget;
  if (work.gpu_memory) spec["gpu_memory"] = *work.gpu_memory;
  const fs::path file = work.folder / "peer.json";  // too long for an argument
  core::write_file_atomically(file, spec.dump());
  std::vector<std::string> command{python, "-c", kBenchPeer, work.model.string(), file.string()};
  const char* const looks = std::getenv("GOMP_SPINCOUNT");
  if (looks != nullptr && std::string_view(looks) == kFewLooks) {  // haul's, not the peer's
    command.insert(command.begin(), {"env", "-u", "GOMP_SPINCOUNT"});
  }
  const ChildEnd end = run_side("the peer", work, std::move(command));
  const core::Json answer = last_line(end.out, "the peer");
  BenchRun run;
  run.start = end.first_output;
  run.load = answer.at("load_s");
  run.first_token = answer.at("first_token_s");
  run.token_rate = answer.at("tokens_per_s");
  run.ids = answer.at("ids");
  run.tops = answer.at("tops");
  run.versions = answer.at("versions");
  return run;
}

std::optional<std::string> peer_is_missing(const std::string& python) {
  try {
    const ChildEnd end = run_child({python, "-c", "import accelerate, torch, transformers"});
    if (end.exit_code == 0) return std::nullopt;
    const std::size_t end_of_text = end.err.find_last_not_of('\n');
    const std::size_t line = end.err.rfind('\n', end_of_text);
    return end.err.substr(line + 1, end_of_text - line);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace haul::cli
