#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "core/place/words.h"
#include "haul/plan.h"

namespace haul {
namespace core {

std::string device_words(Device device) {
  if (device.kind == DeviceKind::kGpu) return fmt::format("GPU {}", device.index);
  if (device.kind == DeviceKind::kCpu) return "RAM";
  return to_string(device);
}

std::string seconds_words(double seconds) {
  if (seconds >= 120) return fmt::format("{:.1f} min", seconds / 60);
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string rate_words(double per_second) {
  return per_second >= 10 ? fmt::format("{:.0f}", per_second) : fmt::format("{:.3g}", per_second);
}

std::int64_t PlanRun::count() const {
  std::int64_t sum = 0;
  for (const Part& part : parts) sum += part.count;
  return sum;
}

std::vector<PlanRun> runs_of(const Plan& plan) {
  std::vector<PlanRun> runs;
  for (const PlanStep& step : plan.steps) {
    if (runs.empty() || runs.back().runs_on != step.runs_on) {
      runs.push_back({step.first, step.last, step.runs_on, {}});
    }
    PlanRun& run = runs.back();
    run.last = step.last;
    auto part = std::find_if(run.parts.begin(), run.parts.end(), [&](const PlanRun::Part& p) {
      return p.lies == step.lies && p.looked_up == step.looked_up;
    });
    if (part == run.parts.end()) part = run.parts.insert(part, {step.lies, step.looked_up, 0, 0});
    part->count += step.count;
    part->weights += step.weights;
  }
  for (PlanRun& run : runs) {
    std::sort(run.parts.begin(), run.parts.end(),
              [](const PlanRun::Part& a, const PlanRun::Part& b) {
                return std::pair(a.lies, a.looked_up) < std::pair(b.lies, b.looked_up);
              });
  }
  return runs;
}

}  // namespace core

namespace {

using core::device_words;
using core::rate_words;
using core::seconds_words;

double gigabytes(double rate) {
  return rate / 1e9;
}

// "model.layers.3 stays", "Of model.layers.0 to model.layers.9, 4 units stay".
std::string subject(const core::PlanRun& run, const core::PlanRun::Part& part) {
  std::string first = run.first.empty() ? "The whole model" : run.first;
  if (run.count() == 1) return first;
  const std::string range = fmt::format("{} to {}", first, run.last);
  if (run.parts.size() == 1) return fmt::format("{} ({} units)", range, part.count);
  return fmt::format("Of {}, {} unit{}", range, part.count, part.count == 1 ? "" : "s");
}

std::string sentence(const core::PlanRun& run, const core::PlanRun::Part& part,
                     const Profile& profile) {
  const bool one = part.count == 1;
  const double bytes = static_cast<double>(part.weights);
  const std::string size = format_bytes(part.weights);
  const std::string who = subject(run, part);
  if (part.lies == run.runs_on && part.lies.is_accelerator()) {
    const double rate = profile.of_gpu(part.lies.index).memory_bandwidth;
    return fmt::format("{} {} on {}: {} read at {:.0f} GB/s take {}.", who, one ? "stays" : "stay",
                       device_words(part.lies), size, gigabytes(rate), seconds_words(bytes / rate));
  }
  if (part.lies == run.runs_on) {
    return fmt::format(
        "{} {} in RAM and {} computed by the CPU there: {} at {:.0f} GB/s, and "
        "nothing is copied.",
        who, one ? "lies" : "lie", one ? "is" : "are", size, gigabytes(profile.ram_bandwidth));
  }
  if (part.looked_up) {
    return fmt::format("{} {} on disk: of {} each pass reads the rows that it needs.", who,
                       one ? "lies" : "lie", size);
  }
  double rate = run.runs_on.is_accelerator() ? profile.of_gpu(run.runs_on.index).link_bandwidth
                                             : profile.disk_bandwidth;
  if (part.lies == kDiskDevice) rate = std::min(rate, profile.disk_bandwidth);
  return fmt::format(
      "{} {} {} and {} copied to {} for each pass, ahead of the work: {} at {:.1f} "
      "GB/s take {}.",
      who, one ? "lies" : "lie", part.lies == kDiskDevice ? "on disk" : "in RAM",
      one ? "is" : "are", device_words(run.runs_on), size, gigabytes(rate),
      seconds_words(bytes / rate));
}

void compare_figure(std::string_view what, double before, double after,
                    std::vector<std::string>* out) {
  if (before == after) return;
  std::string change;
  if (before > 0 && after > 0) {
    change = after < before ? fmt::format(" ({:.2f} times faster)", before / after)
                            : fmt::format(" ({:.2f} times slower)", after / before);
  }
  out->push_back(
      fmt::format("{}: {} -> {}{}", what, seconds_words(before), seconds_words(after), change));
}

}  // namespace

std::vector<std::string> explain(const Plan& plan, const Profile& profile) {
  std::vector<std::string> result;
  for (const core::PlanRun& run : core::runs_of(plan)) {
    for (const core::PlanRun::Part& part : run.parts) {
      result.push_back(sentence(run, part, profile));
    }
  }
  for (const PlanDevice& device : plan.devices) {
    if (device.slots == 0) continue;
    result.push_back(fmt::format("{} keeps {} free for weights that arrive when they are needed.",
                                 device_words(device.device), format_bytes(device.slots)));
  }
  if (plan.cpu_share > 0) {
    result.push_back(
        fmt::format("Of each matrix that lies in RAM for a GPU the CPU multiplies {:.0f} % of the "
                    "rows there, with up to {} tokens at once, while the link brings the others.",
                    100 * plan.cpu_share, plan.helped_rows));
  }
  if (plan.kv_in_ram) {
    result.push_back(
        "Keys and values of all tokens lie in RAM: they are brought for each pass, a layer ahead "
        "of the work.");
  }
  if (!plan.fits) {
    for (const std::string& change : plan.changes) {
      result.push_back(fmt::format("It would fit with {}.", change));
    }
    return result;
  }
  result.push_back(fmt::format("A step takes {}; the {} decides.",
                               seconds_words(plan.token.seconds), plan.token.limit));
  if (plan.proven_best) {
    result.push_back("It is proven that no placement is faster.");
  } else if (plan.best_possible > 0) {
    result.push_back(
        fmt::format("No placement can take less than {}: this one is within {:.2f} % of the best.",
                    seconds_words(plan.best_possible), 100 * plan.gap()));
  }
  if (!profile.measured) {
    result.push_back("The machine's speeds are defaults; measured ones make these figures real.");
  }
  return result;
}

std::vector<std::string> compare(const Plan& before, const Plan& after) {
  std::vector<std::string> result;
  if (before.model != after.model) {
    result.push_back(fmt::format("model: {} -> {}", before.model, after.model));
  }
  if (before.fits != after.fits) {
    result.push_back(after.fits ? "it fits now" : "it does not fit any more");
  }
  std::map<Device, std::pair<Bytes, Bytes>> used;
  for (const PlanDevice& device : before.devices) used[device.device].first = device.used();
  for (const PlanDevice& device : after.devices) used[device.device].second = device.used();
  for (const auto& [device, bytes] : used) {
    if (bytes.first == bytes.second) continue;
    result.push_back(fmt::format("{}: {} -> {}", device_words(device), format_bytes(bytes.first),
                                 format_bytes(bytes.second)));
  }
  std::map<std::string, std::pair<std::string, std::string>> moved;
  for (const auto& [name, device] : before.map) moved[name].first = device_words(device);
  for (const auto& [name, device] : after.map) moved[name].second = device_words(device);
  for (const auto& [name, devices] : moved) {
    // An entry that only one of the maps has may be covered by another name there.
    std::string from = devices.first;
    std::string to = devices.second;
    if (from.empty()) from = device_words(device_of(before.map, name).value_or(kDiskDevice));
    if (to.empty()) to = device_words(device_of(after.map, name).value_or(kDiskDevice));
    if (from != to) {
      result.push_back(
          fmt::format("{}: {} -> {}", name.empty() ? "the whole model" : name, from, to));
    }
  }
  compare_figure("load", before.load.seconds, after.load.seconds, &result);
  if (before.first_token && after.first_token) {
    compare_figure("first token", before.first_token->seconds, after.first_token->seconds, &result);
  }
  compare_figure("step", before.token.seconds, after.token.seconds, &result);
  if (before.tokens_per_second() != after.tokens_per_second()) {
    result.push_back(fmt::format("tokens a second: {} -> {}",
                                 rate_words(before.tokens_per_second()),
                                 rate_words(after.tokens_per_second())));
  }
  return result;
}

}  // namespace haul
