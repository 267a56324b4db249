#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/box_table.h"
#include "cli/estimate_report.h"
#include "core/base/terminal.h"

namespace haul::cli {
namespace {

using core::Style;
using core::styled_stdout;

constexpr int kNameWidth = 18;
constexpr int kSizeWidth = 12;

// The peer divides all rows but float32, and so writes their sizes as fractions.
std::string peer_size(double bytes, bool divided) {
  return divided || bytes != std::floor(bytes) ? format_fractional_bytes(bytes)
                                               : format_bytes(static_cast<Bytes>(bytes));
}

std::string peer_table(const EstimateReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const PeerRow& row : report.rows) {
    const bool divided = row.dtype != RowDtype::kFloat32;
    rows.push_back({std::string(name(row.dtype)), peer_size(row.largest_layer, divided),
                    peer_size(row.total, divided),
                    row.training_adam ? peer_size(*row.training_adam, false) : "N/A"});
  }
  return box_table(fmt::format("Memory Usage for loading `{}`", report.model),
                   {"dtype", "Largest Layer", "Total Size", "Training using Adam"}, rows);
}

std::string heading(const std::string& text) {
  return "\n\n" + styled_stdout(text, Style::kBold);
}

std::string cell(std::string_view text, int width) {
  return fmt::format("{:<{}}", text, width);
}

std::string size_cell(Bytes bytes) {
  return fmt::format("{:>{}}", format_bytes(bytes), kSizeWidth);
}

std::string count_text(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

// The names, the many of a deep model shortened.
std::string layer_names(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  if (names.size() == 1) return names.front();
  return fmt::format("{} … {} ({} layers)", names.front(), names.back(), names.size());
}

std::string facts(const EstimateReport& report) {
  std::string text = heading(report.architecture.empty() ? "Model" : report.architecture);
  text += fmt::format("\n  {} parameters", count_text(report.parameters));
  text += report.from_config ? ", described from the config"
                             : ", described from the checkpoint's headers";
  text += "\n  largest layer: " + layer_names(report.sizes.largest_layer.names);
  if (report.file_bytes) text += "\n  in its files: " + format_bytes(*report.file_bytes);
  return text;
}

std::string true_rows(const EstimateReport& report) {
  std::string text = heading("Weights as they really lie in memory");
  for (const TrueRow& row : report.true_rows) {
    text += "\n  " + cell(name(row.dtype), kNameWidth) + size_cell(row.total);
    if (row.unshrunk > 0) {
      text += styled_stdout(
          fmt::format("  of which {} stay as they are", format_bytes(row.unshrunk)), Style::kDim);
    }
  }
  return text;
}

// A picture of a share, on a terminal only.
std::string bar(Bytes bytes, Bytes total) {
  if (!core::stdout_is_terminal() || total == 0) return "";
  const int room = std::clamp(core::terminal_width() - kNameWidth - kSizeWidth - 14, 0, 40);
  const double share = static_cast<double>(bytes) / static_cast<double>(total);
  const int eighths = static_cast<int>(share * room * 8 + 0.5);
  static constexpr const char* kPartial[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string picture;
  for (int i = 0; i < eighths / 8; ++i) picture += "█";
  picture += kPartial[eighths % 8];
  return "  " + styled_stdout(picture, Style::kCyan);
}

std::string table(const EstimateReport& report) {
  const Bytes total = total_bytes(report.table);
  std::string text = heading("Memory for " + report.run);
  for (const TableEntry& entry : report.table) {
    const double share = 100.0 * static_cast<double>(entry.bytes) / static_cast<double>(total);
    std::string label(name(entry.tag));
    std::replace(label.begin(), label.end(), '_', ' ');
    text += "\n  " + cell(label, kNameWidth) +
            styled_stdout(size_cell(entry.bytes), Style::kGreen) +
            styled_stdout(fmt::format("  {:5.1f} %", share), Style::kDim) + bar(entry.bytes, total);
  }
  return text + "\n  " + cell("total", kNameWidth) + styled_stdout(size_cell(total), Style::kBold);
}

std::string verdict_line(const NamedVerdict& named) {
  const Verdict& v = named.verdict;
  std::string text = "\n  " + cell(named.name, kNameWidth);
  switch (v.fit) {
    case Fit::kFits:
      return text + styled_stdout("fits", Style::kGreen) +
             fmt::format(", {} free", format_bytes(v.free));
    case Fit::kFitsWithOffload:
      return text + styled_stdout("fits with offload", Style::kYellow) +
             fmt::format(", {} of it in RAM or on disk", format_bytes(v.offloaded));
    case Fit::kDoesNotFit:
      return text + styled_stdout("does not fit", Style::kRed) +
             fmt::format(", {} short even with offload", format_bytes(v.missing));
  }
  return text;
}

}  // namespace

std::string estimate_text(const EstimateReport& report) {
  std::string text = peer_table(report) + facts(report) + true_rows(report) + table(report);
  text += heading("Does it fit?");
  if (report.fit) text += verdict_line(*report.fit);
  for (const NamedVerdict& gpu : report.gpus) text += verdict_line(gpu);
  for (const std::string& note : report.notes) {
    text += "\n\n" + styled_stdout("note: " + note, Style::kDim);
  }
  return text;
}

}  // namespace haul::cli
