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

}  // namespace core

namespace {

using core::device_words;
using core::rate_words;
using core::seconds_words;

std::string names(const PlanStep& step) {
  const std::string first = step.first.empty() ? "the whole model" : step.first;
  return step.count == 1 ? first : fmt::format("{} to {} ({} units)", first, step.last, step.count);
}

double gigabytes(double rate) {
  return rate / 1e9;
}

std::string why(const PlanStep& step, const Profile& profile) {
  const double bytes = static_cast<double>(step.weights);
  const std::string size = format_bytes(step.weights);
  const std::string verb = step.count == 1 ? "stays" : "stay";
  if (step.lies == step.runs_on && step.lies.is_accelerator()) {
    return fmt::format("{} on {}: {} read at {:.0f} GB/s take {}", verb, device_words(step.lies),
                       size, gigabytes(profile.of_gpu(step.lies.index).memory_bandwidth),
                       seconds_words(bytes / profile.of_gpu(step.lies.index).memory_bandwidth));
  }
  if (step.lies == step.runs_on) {
    return fmt::format(
        "{} in RAM and {} computed by the CPU where {}: {} at {:.0f} GB/s, and "
        "nothing is copied",
        verb, step.count == 1 ? "is" : "are", step.count == 1 ? "it lies" : "they lie", size,
        gigabytes(profile.ram_bandwidth));
  }
  const double slowest = step.lies == kDiskDevice
                             ? (step.runs_on.is_accelerator()
                                    ? std::min(profile.disk_bandwidth,
                                               profile.of_gpu(step.runs_on.index).link_bandwidth)
                                    : profile.disk_bandwidth)
                             : profile.of_gpu(step.runs_on.index).link_bandwidth;
  return fmt::format(
      "{} {} and {} copied to {} for each pass, ahead of the work: {} at {:.1f} GB/s "
      "take {}",
      step.count == 1 ? "lies" : "lie", step.lies == kDiskDevice ? "on disk" : "in RAM",
      step.count == 1 ? "is" : "are",
      step.runs_on == kCpuDevice ? "RAM" : device_words(step.runs_on), size, gigabytes(slowest),
      seconds_words(bytes / slowest));
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
  for (const PlanStep& step : plan.steps) {
    result.push_back(fmt::format("{} {}.", names(step), why(step, profile)));
  }
  for (const PlanDevice& device : plan.devices) {
    if (device.slots == 0) continue;
    result.push_back(fmt::format("{} keeps {} free for weights that arrive when they are needed.",
                                 device_words(device.device), format_bytes(device.slots)));
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
    result.push_back("Every placement was considered; none is faster.");
  } else if (plan.best_possible > 0) {
    result.push_back(
        fmt::format("No placement can take less than {}.", seconds_words(plan.best_possible)));
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
