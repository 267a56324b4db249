#include "cli/torch/bench_system.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/torch/bench_compare.h"
#include "cli/torch/bench_shapes.h"
#include "cli/torch/bench_sides.h"
#include "cli/torch/bench_table.h"
#include "cli/torch/child.h"
#include "cli/torch/interrupt.h"
#include "core/base/file.h"
#include "core/base/terminal.h"
#include "haul/error.h"
#include "haul/estimate.h"
#include "haul/plan.h"
#include "haul/profile.h"
#include "runtime/dispatch/placement.h"
#include "runtime/measure/machine.h"
#include "runtime/measure/random_checkpoint.h"
#include "runtime/tiers/gpu.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPrompt = 32;
// New tokens of an answer: so many that the first ones, when kernels are loaded, weigh little, but
// where each takes seconds. The peer takes its time, and its speed is steady.
struct Lengths {
  std::int64_t on_gpu;
  std::int64_t on_cpu;
  std::int64_t peer;
};
constexpr Lengths kResident{256, 64, 16};
constexpr Lengths kFromRam{64, 32, 4};
constexpr Lengths kFromDisk{8, 16, 3};
constexpr std::int64_t kLongPrompt = 512;
constexpr std::int64_t kShortAnswer = 32;
constexpr std::array<std::size_t, 9> kAtOnce{8, 16, 32, 48, 64, 96, 128, 192, 256};
constexpr std::array<std::size_t, 3> kAtOnceOnCpu{1, 2, 4};
constexpr double kOffloadedShare = 0.33;    // of the weights, on the GPU
constexpr Bytes kBesideShare = 1 * kGiB;    // for caches and activations
constexpr double kBetter = 1.05;            // times as fast, to try yet more at once
constexpr std::chrono::minutes kFresh(10);  // for which a machine stays as it was measured
// Beside the weights, for a process that runs them.
constexpr Bytes kProcess = 1 * kGiB;
constexpr Bytes kGpuProcess = 3 * kGiB;
// Of logits, within which rounding decides between two tokens. In bfloat16 the peer's are 1.5 %
// (standard deviation; 8B) from those that it has in float32. Four such errors are in a difference
// between two tokens of two sides: 3 %, and this is four times that.
constexpr double kHalfTie = 0.12;
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

double token_rate(const BenchRun& run) {
  return run.token_rate;
}

class Bench {
 public:
  Bench(const char* name, const BenchOptions& options)
      : name_(name), options_(options), shape_(options.shape) {
    catch_interrupt();
    if (shape_.empty()) shape_ = default_shape();
    const core::Json config = bench_config(shape_);
    checkpoint_ = runtime::random_checkpoint(config, shape_);
    // A folder of its own for each config: files of all models are called config.json.
    const fs::path folder =
        options.folder.empty() ? profile_path().parent_path() / "bench" : options.folder;
    model_ = folder / fmt::format("{}-{:08x}", fs::path(shape_).stem().string(),
                                  std::hash<std::string>()(config.dump()) & 0xffffffff);
    work_ = folder / "work";
    fs::create_directories(work_);
    if (!was_just_measured()) {
      say("measuring the machine");
      // In a process of its own, which leaves nothing in a GPU's memory.
      const ChildEnd measured = run_child({"env", "HAUL_PROFILE=" + profile_file().string(),
                                           fs::read_symlink("/proc/self/exe").string(), "bench",
                                           "machine", "--folder", folder.string()});
      end_if_interrupted();
      if (measured.exit_code != 0) throw Error(ErrorKind::kResource, measured.err);
    }
    profile_ = read_profile(core::read_file(profile_file(), kMiB), profile_file().string());
    try {
      runtime::write_checkpoint(checkpoint_, config, model_, [&](Bytes done, Bytes all) {
        say(fmt::format("writing {}: {} of {}", model_.string(), format_bytes(done),
                        format_bytes(all)));
        if (interrupted()) throw Error(ErrorKind::kResource, "interrupted");
      });
    } catch (const Error&) {
      end_if_interrupted();
      throw;
    }
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
  // Operations for prompts and answers of so many, but for attention. The head is asked for the
  // tokens that are answered alone.
  double operations(std::int64_t prompt, std::int64_t answer) const {
    const Dimensions& sizes = *checkpoint_.description.dimensions;
    const double head = 2.0 * static_cast<double>(sizes.vocabulary * sizes.hidden);
    const double all =
        2 * read() / static_cast<double>(byte_count(main_dtype(checkpoint_.description), {1}));
    return (all - head) * static_cast<double>(prompt + answer - 1) +
           head * static_cast<double>(answer);
  }

  InferenceRequest inference(std::size_t count, std::int64_t context) const {
    return {main_dtype(checkpoint_.description), context, static_cast<std::int64_t>(count)};
  }
  Bytes cache(std::size_t count, std::int64_t context) const {
    return kv_bytes(*checkpoint_.description.dimensions, inference(count, context));
  }
  // For so many prompts: the KV cache, and half as much again as haul's activations.
  Bytes beside_weights(std::size_t count, std::int64_t context) const {
    Bytes others = 0;
    for (const TableEntry& entry :
         inference_table(checkpoint_.description, inference(count, context))) {
      if (entry.tag != Tag::kWeights && entry.tag != Tag::kKv) others += entry.bytes;
    }
    return cache(count, context) + others * 3 / 2;
  }
  // Of a module that is not split, for which Accelerate keeps room.
  Bytes largest_layer() const {
    return calculate_maximum_sizes(checkpoint_.description).largest_layer.bits / 8;
  }
  Plan plan_of(const BenchWork& work) const {
    PlanRequest request;
    request.dtype = main_dtype(checkpoint_.description);
    request.context = context_of(work);
    request.batch = static_cast<std::int64_t>(work.prompts.size());
    request.options.no_split = checkpoint_.description.no_split;
    request.margins = true;
    request.memory = work.budget.empty() ? runtime::machine_memory()
                                         : parse_max_memory(budget_text(work.budget));
    return make_plan(checkpoint_.description, request, profile_);
  }
  // What each token reads there.
  double read_from(Device place, const BenchWork& work) const {
    double bytes = 0;
    const Plan plan = plan_of(work);
    for (const PlanStep& step : plan.steps) {
      if (step.lies == place && !step.looked_up) bytes += static_cast<double>(step.weights);
    }
    // Of a table in RAM the CPU reads some rows.
    const PlanStep& first = plan.steps.front();
    const bool looks_up = place == kCpuDevice && first.lies == place && first.runs_on == kCpuDevice;
    return looks_up ? bytes - (weights() - read()) : bytes;
  }
  BenchWork work(std::size_t count, std::int64_t prompt, std::int64_t new_tokens) const {
    const std::int64_t vocabulary = checkpoint_.description.dimensions->vocabulary;
    BenchWork work;
    work.model = model_;
    work.folder = work_;
    work.on_gpu = has_gpu();
    work.prompts = prompts(count, prompt, vocabulary);
    work.new_tokens = new_tokens;
    return work;
  }
  BenchWork work(const Lengths& lengths) const {
    return work(1, kPrompt, has_gpu() ? lengths.on_gpu : lengths.on_cpu);
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

  // Bytes a second that its disk gives of the model's largest file.
  double disk_bandwidth() const {
    fs::path largest;
    for (const auto& entry : fs::directory_iterator(model_)) {
      if (!entry.is_regular_file()) continue;
      if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
    }
    return runtime::disk_bandwidth(largest);
  }

  // In turns, so that what else the machine does meets both. A row for each figure that one run
  // gives.
  using Figure = double (*)(const BenchRun&);
  // Of the first row, for one that is not steady: it is asked before and after each run of haul.
  using Limit = std::function<double()>;
  void measure(std::vector<std::pair<BenchRow, Figure>> figures, const BenchWork& ours,
               const BenchWork& theirs, std::optional<BenchRun> theirs_first = {},
               const Limit& limit = {}) {
    std::vector<double> limits;
    bool asks = has_peer();
    bool fits = true;
    for (int round = 0; round < options_.rounds; ++round) {
      say(fmt::format("{}: {} of {}", figures.front().first.name, round + 1, options_.rounds));
      std::optional<BenchRun> own;
      const double before = limit && fits ? limit() : 0;
      if (fits) own = haul_if_it_fits(ours, figures.front().first.remark);
      fits = own.has_value();
      if (limit && fits) limits.push_back((before + limit()) / 2);
      if (fits) {
        for (auto& [row, figure] : figures) {
          row.haul.push_back(figure(*own));
          if (figure == token_rate) row.planned = own->planned_rate;
        }
      }
      if (!asks) continue;
      try {
        const BenchRun other =
            theirs_first ? *std::exchange(theirs_first, std::nullopt) : peer(theirs);
        for (auto& [row, figure] : figures) {
          row.peer.push_back(figure(other));
          if (fits && row.ids.same) {
            row.ids = compare(beginnings(own->ids, theirs.new_tokens), other.ids, other.tops,
                              tolerance());
          }
        }
      } catch (const Error& error) {
        asks = false;
        figures.front().first.remark += error.what();
      }
    }
    if (limit) figures.front().first.limit = BenchRow::median(limits);
    for (auto& [row, figure] : figures) {
      say("");
      fmt::print(stderr, "{}\n", bench_line(row));
      rows_.push_back(std::move(row));
    }
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
                      {"no_peer", no_peer_},
                      {"rows", core::Json::array()}};
      for (const BenchRow& row : rows_) json["rows"].push_back(to_json(row));
      fmt::print("{}\n", json.dump(2));
    } else {
      fmt::print("{}, {} of random weights, medians of {}\n{}", shape_,
                 format_bytes(checkpoint_.weights), options_.rounds, bench_table(rows_));
    }
    if (!no_peer_.empty()) fmt::print(stderr, "haul: warning: {}\n", no_peer_);
    for (const BenchRow& row : rows_) {
      if (row.ids.same) continue;
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("the ids are not the peer's: {}: {}", row.name, row.ids.difference));
    }
  }

 private:
  fs::path profile_file() const { return work_ / "profile.json"; }
  // By the bench before this one.
  bool was_just_measured() const {
    std::error_code none;
    const auto written = fs::last_write_time(profile_file(), none);
    return !none && fs::file_time_type::clock::now() - written < kFresh;
  }
  double tolerance() const {
    return main_dtype(checkpoint_.description) == Dtype::kF32 ? kFloatTie : kHalfTie;
  }
  static Answers beginnings(Answers answers, std::int64_t tokens) {
    for (auto& ids : answers) ids.resize(std::min(ids.size(), static_cast<std::size_t>(tokens)));
    return answers;
  }
  // A budget may be too small for it, which is an answer; any other failure is not.
  std::optional<BenchRun> haul_if_it_fits(const BenchWork& work, std::string& remark) const {
    try {
      return haul(work);
    } catch (const Error& error) {
      const std::string words = error.what();
      if (words.find("does not fit") == std::string::npos) throw;
      remark += words;
      return std::nullopt;
    }
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
  fs::path model_;
  fs::path work_;
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

BenchWork with_tokens(BenchWork work, std::int64_t new_tokens) {
  work.new_tokens = new_tokens;
  return work;
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
    BenchWork work = bench.work(kFromDisk);
    work.budget = on_gpu;
    const Bytes ram = bench.share(percent / 100.0);
    work.budget["cpu"] = ram;
    if (limited) work.memory = ram + (bench.has_gpu() ? kGpuProcess : kProcess);
    work.cold = limited;  // pages that are there already are not the group's
    std::string name = fmt::format("{} % in RAM, rest on disk", percent);
    for (const auto& [device, bytes] : on_gpu) {
      name = fmt::format("{} of GPU, {}", format_bytes(bytes), name);
    }
    const double read = bench.read_from(kDiskDevice, work);
    BenchRow result = row(name, "tokens/s", std::nullopt);
    Bench::Limit limit;
    if (read > 0) {
      limit = [&bench, read] { return bench.disk_bandwidth() / read; };
    }
    if (!limited) result.remark = "the page cache was not limited, which needs root; ";
    bench.measure({{result, token_rate}}, work, with_tokens(work, kFromDisk.peer), {}, limit);
  }
}

}  // namespace

void bench_decode(const BenchOptions& options) {
  Bench bench("decode", options);
  const c10::Device device = bench.has_gpu() ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  const double limit = runtime::read_bandwidth(device) / bench.read();
  const BenchWork work = bench.work(kResident);
  bench.measure(
      {{row(bench.has_gpu() ? "all on the GPU" : "all in RAM", "tokens/s", limit), token_rate}},
      work, with_tokens(work, kResident.peer));
  bench.print();
}

void bench_offload(const BenchOptions& options) {
  Bench bench("offload", options);
  std::map<std::string, Bytes> on_gpu;
  if (bench.has_gpu()) {
    for (const int percent : {60, 33, 15}) {
      BenchWork work = bench.work(kFromRam);
      on_gpu["0"] = bench.share(percent / 100.0);
      work.budget = on_gpu;
      work.budget["cpu"] = bench.share(2);
      // The CPU multiplies what the link does not bring.
      const double together =
          bench.profile().of_gpu(0).link_bandwidth + bench.profile().help_bandwidth;
      const double read = bench.read_from(kCpuDevice, work);
      bench.measure({{row(fmt::format("{} % on the GPU, rest in RAM", percent), "tokens/s",
                          read > 0 ? std::optional(together / read) : std::nullopt),
                      token_rate}},
                    work, with_tokens(work, kFromRam.peer));
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
  const auto measure = [&](const BenchWork& work, const std::string& how,
                           std::optional<double> limit, const Bench::Limit& unsteady = {}) {
    BenchRow load = row("load, " + how, "s", limit);
    BenchRow start = row("start to first token, " + how, "s", std::nullopt);
    load.more_is_better = start.more_is_better = false;
    bench.measure({{load, [](const BenchRun& run) { return run.load; }},
                   {start, [](const BenchRun& run) { return run.start; }}},
                  work, work, {}, unsteady);
  };
  BenchWork work = bench.work(1, kPrompt, 1);
  work.cold = true;
  measure(work, "page cache cold", std::nullopt,
          [&] { return bench.weights() / bench.disk_bandwidth(); });
  work.cold = false;
  bring_into_page_cache(work.model);
  measure(work, "page cache warm", warm);
  if (bench.has_gpu()) {
    work.budget = {{"0", bench.share(kOffloadedShare)}, {"cpu", bench.share(2)}};
    measure(work, "33 % on the GPU, warm", std::nullopt);
  }
  bench.print();
}

void bench_throughput(const BenchOptions& options) {
  BenchOptions chosen = options;
  if (chosen.shape.empty() && runtime::gpus().empty()) chosen.shape = "llama-135m";
  Bench bench("throughput", chosen);
  const Bytes budget = bench.share(kOffloadedShare) + kBesideShare;
  const auto ours_of = [&](std::size_t count) {
    BenchWork work = bench.work(count, kLongPrompt, kShortAnswer);
    if (bench.has_gpu()) work.budget = {{"0", budget}, {"cpu", bench.share(2)}};
    return work;
  };
  // The peer's budget is for weights: it gets what is left beside its cache.
  const auto theirs_of = [&](std::size_t count) {
    BenchWork work = ours_of(count);
    work.new_tokens = kFromRam.peer;
    if (!bench.has_gpu()) return work;
    const Bytes beside = bench.beside_weights(count, kLongPrompt + kShortAnswer);
    work.budget["0"] = budget - std::min(budget, beside);
    work.gpu_memory = budget;
    return work;
  };
  const auto rate = [](const BenchRun& run) { return run.rate_of_answers(kShortAnswer); };
  // As many at once as a side does best with: haul by its plans, the peer as it shows, until more
  // are no better.
  using RateOf = std::function<double(std::size_t)>;
  const auto best = [&](bool all, const RateOf& rate_of) {
    const std::span<const std::size_t> counts =
        bench.has_gpu() ? std::span(kAtOnce) : std::span<const std::size_t>(kAtOnceOnCpu);
    std::size_t count = counts.front();  // where none fits it then says what is missing
    double fastest = 0;
    for (const std::size_t next : counts) {
      const double found = rate_of(next);
      if (found > fastest * kBetter) {
        fastest = found;
        count = next;
      } else if (!all) {
        break;
      }
    }
    return count;
  };
  const std::size_t ours =
      best(true, [&](std::size_t n) { return bench.plan_of(ours_of(n)).tokens_per_second(); });
  std::map<std::size_t, BenchRun> tried;
  const std::size_t theirs = !bench.has_peer() ? ours : best(false, [&](std::size_t n) {
    const BenchWork work = theirs_of(n);
    // With less it would leave the GPU alone, and compute all on the CPU.
    if (bench.has_gpu() && work.budget.at("0") < 2 * bench.largest_layer()) return 0.0;
    say(fmt::format("the peer: {} at once", n));
    try {
      return rate(tried[n] = bench.peer(work));
    } catch (const Error&) {
      return 0.0;  // so many do not fit
    }
  });
  const auto count = static_cast<double>(ours);
  const Profile& profile = bench.profile();
  const GpuProfile& gpu = profile.of_gpu(0);
  double least = count * bench.operations(kLongPrompt, kShortAnswer) /
                 (bench.has_gpu() ? gpu.operations : profile.cpu_operations);
  if (bench.has_gpu()) {
    // What the GPU has no room for comes for each token: weights, or keys and values.
    const double moved = bench.read() +
                         static_cast<double>(bench.cache(ours, kLongPrompt + kShortAnswer)) -
                         static_cast<double>(budget);
    least = std::max(least, static_cast<double>(kShortAnswer) * moved / gpu.link_bandwidth);
  }
  BenchRow result = row(fmt::format("{} in, {} out{}", kLongPrompt, kShortAnswer,
                                    bench.has_gpu() ? ", 33 % and 1 GB on the GPU" : ""),
                        "tokens/s", count * static_cast<double>(kShortAnswer) / least);
  result.remark = fmt::format("{} at once", ours);
  if (bench.has_peer()) result.remark += fmt::format(", the peer {}", theirs);
  result.remark += "; ";
  const auto first = tried.find(theirs);
  bench.measure({{result, rate}}, ours_of(ours), theirs_of(theirs),
                first == tried.end() ? std::nullopt : std::optional(first->second));
  bench.print();
}

}  // namespace haul::cli
