#include "cli/torch/run_output.h"

#include <fmt/format.h>

namespace haul::cli {

core::Json stats(const LoadedModel& model) {
  const GenerateFigures& figures = model.figures();
  const DispatchReport report = model.report();
  core::Json peak = core::Json::object();
  core::Json planned = core::Json::object();
  for (const TierUse& tier : report.tiers) {
    peak[tier.tier] = tier.peak;
    planned[tier.tier] = tier.planned;
  }
  const ProcessMemory process = model.process_memory();
  const Plan& plan = model.plan();
  return {
      {"load_s", model.load_seconds()},
      {"first_token_s", figures.first_token_seconds},
      {"tokens_per_s", figures.tokens_per_second()},
      {"predicted", {{"load_s", plan.load.seconds}, {"tokens_per_s", plan.tokens_per_second()}}},
      {"bytes_moved", report.bytes_moved},
      {"peak", std::move(peak)},
      {"planned", std::move(planned)},
      {"process", process.peak},
      {"libtorch", process.libtorch}};
}

core::Json to_json(const Generated& generated, const LoadedModel& model) {
  core::Json map = core::Json::object();
  for (const auto& [name, device] : model.plan().map) {
    if (device.kind == DeviceKind::kGpu) {
      map[name] = device.index;
    } else {
      map[name] = to_string(device);
    }
  }
  return {{"text", generated.text},
          {"ids", generated.ids},
          {"prompt_ids", generated.prompt_ids},
          {"device_map", std::move(map)},
          {"stats", stats(model)}};
}

std::string figures_line(const LoadedModel& model) {
  const GenerateFigures& figures = model.figures();
  return figures_line(model, fmt::format("first token {:.2f} s, {:.1f} tokens/s",
                                         figures.first_token_seconds, figures.tokens_per_second()));
}

std::string figures_line(const LoadedModel& model, const std::string& work) {
  const DispatchReport report = model.report();
  std::string line = fmt::format("load {:.2f} s, {}, {} moved", model.load_seconds(), work,
                                 format_bytes(report.bytes_moved));
  for (const TierUse& tier : report.tiers) {
    line += fmt::format(", {} peak {} of {} planned", tier.tier, format_bytes(tier.peak),
                        format_bytes(tier.planned));
  }
  const ProcessMemory process = model.process_memory();
  return line + fmt::format(", process {} with {} of libtorch", format_bytes(process.peak),
                            format_bytes(process.libtorch));
}

}  // namespace haul::cli
