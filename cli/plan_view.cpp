#include "cli/plan_view.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/base/terminal.h"
#include "core/place/words.h"

namespace haul::cli {
namespace {

using core::device_words;
using core::rate_words;
using core::seconds_words;
using core::Style;

struct Part {
  const char* name;
  const char* mark;  // tells the parts apart where there is no colour
  Style style;
  Bytes PlanDevice::*bytes;
};
constexpr std::array<Part, 5> kParts{{{"weights", "█", Style::kBlue, &PlanDevice::weights},
                                      {"kv", "▓", Style::kYellow, &PlanDevice::kv},
                                      {"activations", "▒", Style::kGreen, &PlanDevice::activations},
                                      {"driver", "▚", Style::kDim, &PlanDevice::context},
                                      {"slots", "░", Style::kMagenta, &PlanDevice::slots}}};

std::string repeated(const char* mark, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += mark;
  return result;
}

std::string bar(const PlanDevice& device, int width) {
  const Bytes whole =
      std::max<Bytes>(1, std::max(device.budget.value_or(device.used()), device.used()));
  std::string result;
  int drawn = 0;
  Bytes sum = device.margins;
  for (const Part& part : kParts) {
    sum += device.*part.bytes;
    const double share = static_cast<double>(sum) / static_cast<double>(whole);
    int end = static_cast<int>(std::lround(share * width));
    if (device.*part.bytes > 0) end = std::max(end, drawn + 1);  // what is there is seen
    end = std::min(end, width);
    result += core::styled_stdout(repeated(part.mark, end - drawn), part.style);
    drawn = std::max(drawn, end);
  }
  return result + core::styled_stdout(repeated("·", width - drawn), Style::kDim);
}

std::string picture(const Plan& plan, int width) {
  std::string result;
  const int bar_width = std::clamp(width - 36, 16, 60);
  for (const PlanDevice& device : plan.devices) {
    const std::string used = format_bytes(device.used());
    result += fmt::format("  {:<6} {} {}\n", device_words(device.device), bar(device, bar_width),
                          device.budget ? used + " of " + format_bytes(*device.budget) : used);
  }
  result += "        ";
  for (const Part& part : kParts) {
    result += core::styled_stdout(part.mark, part.style) + fmt::format(" {}  ", part.name);
  }
  return result + "\n";
}

std::string table(const Plan& plan) {
  const auto shown = [](Bytes bytes) { return bytes == 0 ? "-" : format_bytes(bytes); };
  std::string result = fmt::format("  {:<6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "",
                                   "weights", "kv", "activations", "driver", "slots", "free");
  for (const PlanDevice& device : plan.devices) {
    std::string free;
    if (device.budget) free = shown(*device.budget - std::min(*device.budget, device.used()));
    result += fmt::format("  {:<6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}\n",
                          device_words(device.device), shown(device.weights + device.margins),
                          shown(device.kv), shown(device.activations), shown(device.context),
                          shown(device.slots), free);
  }
  return result;
}

// A line for each run of units on one device, in the order of the work.
std::string way_of_the_work(const Plan& plan) {
  constexpr std::size_t kMostLines = 24;
  const std::vector<core::PlanRun> runs = core::runs_of(plan);
  std::string result;
  for (std::size_t i = 0; i < runs.size() && i < kMostLines; ++i) {
    const core::PlanRun& run = runs[i];
    std::string parts;
    for (const core::PlanRun::Part& part : run.parts) {
      const std::string where = part.lies == run.runs_on   ? "there"
                                : part.looked_up           ? "looked up on disk"
                                : part.lies == kDiskDevice ? "copied from disk"
                                                           : "copied from RAM";
      parts +=
          fmt::format("{}{} ({})", parts.empty() ? "" : ", ", where, format_bytes(part.weights));
    }
    const std::string first = run.first.empty() ? "(all)" : run.first;
    result += fmt::format(
        "  {:<6} {}: {}\n", run.runs_on == kCpuDevice ? "CPU" : device_words(run.runs_on),
        run.count() == 1 ? first : fmt::format("{} … {}", first, run.last), parts);
  }
  if (runs.size() > kMostLines) result += fmt::format("  and {} more\n", runs.size() - kMostLines);
  return result;
}

std::string predictions(const Plan& plan) {
  std::string result = fmt::format("  load         {:>10}   limit: {}\n",
                                   seconds_words(plan.load.seconds), plan.load.limit);
  if (plan.first_token) {
    result += fmt::format("  first token  {:>10}   limit: {}\n",
                          seconds_words(plan.first_token->seconds), plan.first_token->limit);
  }
  return result + fmt::format("  tokens/s     {:>10}   limit: {}\n",
                              rate_words(plan.tokens_per_second()), plan.token.limit);
}

}  // namespace

std::string plan_view(const Plan& plan, int width) {
  std::string title = plan.model + ": " + std::string(to_string(plan.mode));
  if (plan.context) title += fmt::format(", context {}", *plan.context);
  title += fmt::format(", batch {}", plan.batch);
  std::string result = core::styled_stdout(title, Style::kBold) + "\n";
  if (!plan.devices.empty()) result += "\n" + picture(plan, width) + "\n" + table(plan);
  if (!plan.steps.empty()) result += "\n" + way_of_the_work(plan);
  if (plan.fits) return result + "\n" + predictions(plan);
  result += core::styled_stdout("\n  It does not fit.", Style::kRed);
  if (!plan.changes.empty()) result += " It would with one of:";
  result += "\n";
  for (const std::string& change : plan.changes) result += "    " + change + "\n";
  return result;
}

}  // namespace haul::cli
