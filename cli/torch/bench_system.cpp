#include "cli/torch/bench_system.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/torch/bench_shapes.h"
#include "cli/torch/bench_sides.h"
#include "cli/torch/bench_table.h"
#include "cli/torch/child.h"
#include "cli/torch/interrupt.h"
#include "core/base/file.h"
#include "core/base/terminal.h"
#include "haul/error.h"
#include "haul/profile.h"
#include "runtime/measure/machine.h"
#include "runtime/measure/random_checkpoint.h"
#include "runtime/tiers/gpu.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPrompt = 32;
constexpr std::int64_t kNew = 64;
constexpr std::int64_t kLongPrompt = 512;
constexpr std::int64_t kShortAnswer = 32;
constexpr std::size_t kMostAtOnce = 256;
constexpr std::size_t kMostOnCpu = 4;
constexpr double kBetter = 1.05;  // times as fast, to try yet more at once
// Beside the weights, for a process that runs them.
constexpr Bytes kProcess = 512 * kMiB;
constexpr Bytes kGpuProcess = 3 * kGiB;
// Of logits, within which rounding decides between two tokens.
constexpr double kHalfTie = 0.02;
constexpr double kFloatTie = 1e-3;

void say(const std::string& what) {
  if (core::stderr_is_terminal()) fmt::print(stderr, "\r\x1b[K{}", what);
}

std::string default_shape() {
  const std::vector<runtime::Gpu> gpus = runtime::gpus();
  const bool large = !gpus.empty() && gpus.front().total > 24 * kGiB;
  return large ? "llama-8b" : "llama-1b";
}

// Any tokens will do, but the same ones for all.
std::vector<std::vector<TokenId>> prompts(std::size_t count, std::int64_t length,
                                          std::int64_t vocabulary) {
  std::vector<std::vector<TokenId>> all(count);
  std::int64_t next = 17;
  for (auto& ids : all) {
    for (std::int64_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<TokenId>(next % vocabulary));
      next = (next * 7919 + 101) % 1'000'003;
    }
  }
  return all;
}

class Bench {
 public:
  Bench(const char* name, const BenchOptions& options)
      : name_(name), options_(options), shape_(options.shape) {
    catch_interrupt();
    if (shape_.empty()) shape_ = default_shape();
    const core::Json config = bench_config(shape_);
    folder_ = options.folder.empty() ? profile_path().parent_path() / "bench" : options.folder;
    fs::create_directories(folder_);
    runtime::MeasureOptions measure;
    measure.folder = folder_;
    measure.on_step = [](const std::string& what) { say("measuring: " + what); };
    profile_ = runtime::measure_machine(measure);
    core::write_file_atomically(profile_file(), write_profile(profile_));
    const std::string model = fs::path(shape_).filename().string();
    model_ = folder_ / (model.ends_with(".json") ? "config-" + model : model);
    checkpoint_ = runtime::random_checkpoint(config, model_, [&](Bytes done, Bytes all) {
      say(fmt::format("writing {}: {} of {}", model_.string(), format_bytes(done),
                      format_bytes(all)));
      end_if_interrupted();
    });
    if (options.peer.empty()) return;
    if (const auto missing = peer_is_missing(options.peer)) {
      no_peer_ = fmt::format("no peer: {}: {}", options.peer, *missing);
    } else {
      peer_ = options.peer;
    }
  }

  const Profile& profile() const { return profile_; }
  bool has_gpu() const { return !profile_.gpus.empty(); }
  double weights() const { return static_cast<double>(checkpoint_.weights); }
  double read() const { return static_cast<double>(checkpoint_.read); }
  bool has_peer() const { return !peer_.empty(); }
  // Operations for one token, but for attention.
  double operations() const {
    return 2 * read() / static_cast<double>(byte_count(main_dtype(checkpoint_.description), {1}));
  }

  BenchWork work(std::size_t count, std::int64_t prompt, std::int64_t new_tokens) const {
    const std::int64_t vocabulary = checkpoint_.description.dimensions->vocabulary;
    BenchWork work;
    work.model = model_;
    work.folder = folder_;
    work.prompts = prompts(count, prompt, vocabulary);
    work.new_tokens = new_tokens;
    return work;
  }
  // A share of all weights.
  Bytes share(double part) const { return static_cast<Bytes>(weights() * part); }

  BenchRun haul(const BenchWork& work) const {
    return checked([&] { return run_haul(work, profile_file()); });
  }
  BenchRun peer(const BenchWork& work) {
    BenchRun run = checked([&] { return run_peer(work, peer_); });
    versions_ = run.versions;
    return run;
  }

  // In turns, so that what else the machine does meets both. A row for each figure that one run
  // gives.
  using Figure = double (*)(const BenchRun&);
  void measure(std::vector<std::pair<BenchRow, Figure>> figures, const BenchWork& ours,
               const BenchWork& theirs) {
    bool asks = has_peer();
    for (int round = 0; round < options_.rounds; ++round) {
      say(fmt::format("{}: {} of {}", figures.front().first.name, round + 1, options_.rounds));
      std::optional<BenchRun> own;
      try {
        own = haul(ours);
      } catch (const Error& error) {  // a budget may be too small for it
        for (auto& [row, figure] : figures) row.remark += error.what();
        break;
      }
      for (auto& [row, figure] : figures) {
        row.haul.push_back(figure(*own));
        if (row.unit == "tokens/s" && ours.prompts.size() == 1) row.planned = own->planned_rate;
      }
      if (!asks) continue;
      try {
        const BenchRun other = peer(theirs);
        const Comparison ids = compare(*own, other, tolerance());
        for (auto& [row, figure] : figures) {
          row.peer.push_back(figure(other));
          if (row.ids.same) row.ids = ids;
        }
      } catch (const Error& error) {
        asks = false;
        for (auto& [row, figure] : figures) row.remark += error.what();
      }
    }
    for (auto& [row, figure] : figures) rows_.push_back(std::move(row));
  }

  void print() const {
    say("");
    if (options_.json) {
      core::Json json{{"bench", name_},
                      {"shape", shape_},
                      {"weights", checkpoint_.weights},
                      {"rounds", options_.rounds},
                      {"profile", core::parse_json(write_profile(profile_), "the profile")},
                      {"peer_versions", versions_},
                      {"rows", core::Json::array()}};
      for (const BenchRow& row : rows_) json["rows"].push_back(to_json(row));
      fmt::print("{}\n", json.dump(2));
    } else {
      fmt::print("{}, {} of random weights, medians of {}\n{}", shape_,
                 format_bytes(checkpoint_.weights), options_.rounds, bench_table(rows_));
    }
    if (!no_peer_.empty()) fmt::print(stderr, "haul: {}\n", no_peer_);
    for (const BenchRow& row : rows_) {
      if (row.ids.same) continue;
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("the ids are not the peer's: {}: {}", row.name, row.ids.difference));
    }
  }

 private:
  fs::path profile_file() const { return folder_ / "profile.json"; }
  double tolerance() const {
    return main_dtype(checkpoint_.description) == Dtype::kF32 ? kFloatTie : kHalfTie;
  }
  template <typename Run>
  static BenchRun checked(Run run) {
    try {
      return run();
    } catch (const Error&) {
      end_if_interrupted();
      throw;
    }
  }

  std::string name_;
  BenchOptions options_;
  std::string shape_;
  fs::path folder_;
  fs::path model_;
  Profile profile_;
  runtime::RandomCheckpoint checkpoint_;
  std::string peer_;
  std::string no_peer_;
  core::Json versions_;
  std::vector<BenchRow> rows_;
};

BenchRow row(std::string name, std::string unit, std::optional<double> limit) {
  BenchRow result;
  result.name = std::move(name);
  result.unit = std::move(unit);
  result.limit = limit;
  return result;
}

double token_rate(const BenchRun& run) {
  return run.token_rate;
}

// Whether a process can be held to some memory here.
bool can_limit_memory() {
  try {
    const MemoryGroup group(kProcess);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The rest of the weights on disk, in a process that has no page cache to keep them in.
void measure_disk(Bench& bench, const std::map<std::string, Bytes>& on_gpu, bool limited) {
  for (const int percent : {75, 50, 25}) {
    BenchWork work = bench.work(1, kPrompt, kNew / 4);
    work.budget = on_gpu;
    const Bytes ram = bench.share(percent / 100.0);
    work.budget["cpu"] = ram;
    if (limited) work.memory = ram + (bench.has_gpu() ? kGpuProcess : kProcess);
    work.cold = limited;  // pages that are there already are not the group's
    Bytes kept = ram;
    for (const auto& [device, bytes] : on_gpu) kept += bytes;
    const double streamed = bench.read() - static_cast<double>(kept);
    BenchRow result =
        row(fmt::format("{} % in RAM, rest on disk", percent), "tokens/s",
            streamed > 0 ? std::optional(bench.profile().disk_bandwidth / streamed) : std::nullopt);
    if (!limited) result.remark = "the page cache was not limited, which needs root; ";
    bench.measure({{result, token_rate}}, work, work);
  }
}

}  // namespace

void bench_decode(const BenchOptions& options) {
  Bench bench("decode", options);
  const c10::Device device = bench.has_gpu() ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  const double limit = runtime::read_bandwidth(device) / bench.read();
  const BenchWork work = bench.work(1, kPrompt, kNew);
  bench.measure(
      {{row(bench.has_gpu() ? "all on the GPU" : "all in RAM", "tokens/s", limit), token_rate}},
      work, work);
  bench.print();
}

void bench_offload(const BenchOptions& options) {
  Bench bench("offload", options);
  std::map<std::string, Bytes> on_gpu;
  if (bench.has_gpu()) {
    for (const int percent : {60, 33, 13}) {
      BenchWork work = bench.work(1, kPrompt, kNew / 2);
      on_gpu["0"] = bench.share(percent / 100.0);
      work.budget = on_gpu;
      work.budget["cpu"] = bench.share(2);
      const double streamed = bench.read() - static_cast<double>(on_gpu["0"]);
      bench.measure({{row(fmt::format("{} % on the GPU, rest in RAM", percent), "tokens/s",
                          bench.profile().of_gpu(0).link_bandwidth / streamed),
                      token_rate}},
                    work, work);
    }
  }
  measure_disk(bench, on_gpu, can_limit_memory());
  bench.print();
}

void bench_load(const BenchOptions& options) {
  Bench bench("load", options);
  const Profile& profile = bench.profile();
  std::optional<double> warm;
  if (bench.has_gpu()) warm = bench.weights() / profile.of_gpu(0).link_bandwidth;
  for (const bool cold : {true, false}) {
    BenchWork work = bench.work(1, kPrompt, 1);
    work.cold = cold;
    if (!cold) bench.haul(work);  // brings the files into the page cache
    const char* const cache = cold ? "cold" : "warm";
    const auto limit = cold ? std::optional(bench.weights() / profile.disk_bandwidth) : warm;
    BenchRow load = row(fmt::format("load, page cache {}", cache), "s", limit);
    BenchRow start = row(fmt::format("start to first token, {}", cache), "s", std::nullopt);
    load.more_is_better = start.more_is_better = false;
    bench.measure({{load, [](const BenchRun& run) { return run.load; }},
                   {start, [](const BenchRun& run) { return run.start; }}},
                  work, work);
  }
  bench.print();
}

void bench_throughput(const BenchOptions& options) {
  BenchOptions chosen = options;
  if (chosen.shape.empty() && runtime::gpus().empty()) chosen.shape = "llama-135m";
  Bench bench("throughput", chosen);
  const auto work_of = [&](std::size_t count) {
    BenchWork work = bench.work(count, kLongPrompt, kShortAnswer);
    if (bench.has_gpu()) work.budget = {{"0", bench.share(0.33)}, {"cpu", bench.share(2)}};
    return work;
  };
  const auto rate = [](const BenchRun& run) { return run.all_rate; };
  // As many at once as a side does best with.
  const auto best = [&](const char* side, const std::function<BenchRun(const BenchWork&)>& run) {
    std::size_t count = 1;
    double fastest = 0;
    const std::size_t most = bench.has_gpu() ? kMostAtOnce : kMostOnCpu;
    for (std::size_t next = 1; next <= most; next *= 4) {
      say(fmt::format("{}: {} at once", side, next));
      try {
        const double found = rate(run(work_of(next)));
        if (found < fastest * kBetter) break;
        fastest = found;
        count = next;
      } catch (const Error&) {
        if (next == 1) throw;
        break;  // so many do not fit
      }
    }
    return count;
  };
  const std::size_t ours = best("haul", [&](const BenchWork& work) { return bench.haul(work); });
  std::size_t theirs = 1;
  if (bench.has_peer()) {
    theirs = best("the peer", [&](const BenchWork& work) { return bench.peer(work); });
  }
  const auto count = static_cast<double>(ours);
  const double tokens = count * static_cast<double>(kLongPrompt + kShortAnswer - 1);
  const Profile& profile = bench.profile();
  const GpuProfile& gpu = profile.of_gpu(0);
  double least =
      tokens * bench.operations() / (bench.has_gpu() ? gpu.operations : profile.cpu_operations);
  if (bench.has_gpu()) {
    const double streamed = bench.read() - static_cast<double>(bench.share(0.33));
    least = std::max(least, static_cast<double>(kShortAnswer) * streamed / gpu.link_bandwidth);
  }
  BenchRow result = row(fmt::format("{} in, {} out{}", kLongPrompt, kShortAnswer,
                                    bench.has_gpu() ? ", 33 % on the GPU" : ""),
                        "tokens/s", count * static_cast<double>(kShortAnswer) / least);
  result.remark = fmt::format("{} at once", ours);
  if (bench.has_peer()) result.remark += fmt::format(", the peer {}; ", theirs);
  bench.measure({{result, rate}}, work_of(ours), work_of(theirs));
  bench.print();
}

}  // namespace haul::cli
