#include "cli/torch/bench_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace haul::cli {
namespace {

std::string number(std::optional<double> value, const char* unit = "") {
  if (!value) return "-";
  return fmt::format("{:.{}f}{}", *value, *value < 10 ? 2 : 1, unit);
}

std::string ids_text(const BenchRow& row) {
  if (row.peer.empty() || row.haul.empty()) return "-";
  if (!row.ids.same) return "DIFFER";
  if (!row.ids.tie) return "same";
  return fmt::format("same to a tie at {} ({:.1f} %)", *row.ids.tie, 100 * row.ids.gap);
}

core::Json or_null(const std::optional<double>& value) {
  return value ? core::Json(*value) : core::Json(nullptr);
}

}  // namespace

double BenchRow::median(std::vector<double> figures) {
  if (figures.empty()) return 0;
  std::sort(figures.begin(), figures.end());
  const std::size_t middle = figures.size() / 2;
  return figures.size() % 2 == 1 ? figures[middle] : (figures[middle - 1] + figures[middle]) / 2;
}

std::optional<double> BenchRow::times_the_peer() const {
  const double ours = median(haul);
  const double theirs = median(peer);
  if (ours <= 0 || theirs <= 0) return std::nullopt;
  return more_is_better ? ours / theirs : theirs / ours;
}

std::optional<double> BenchRow::of_limit() const {
  const double ours = median(haul);
  if (!limit || ours <= 0) return std::nullopt;
  return more_is_better ? ours / *limit : *limit / ours;
}

std::string bench_table(const std::vector<BenchRow>& rows) {
  std::size_t width = 0;
  for (const BenchRow& row : rows) width = std::max(width, row.name.size());
  std::string text = fmt::format("{:<{}}  {:<9}{:>8}{:>9}{:>8}{:>9}{:>9}{:>9}  {}\n", "", width, "",
                                 "limit", "haul", "of it", "planned", "peer", "times", "ids");
  for (const BenchRow& row : rows) {
    text +=
        fmt::format("{:<{}}  {:<9}{:>8}{:>9}{:>8}{:>9}{:>9}{:>9}  {}\n", row.name, width, row.unit,
                    number(row.limit), row.haul.empty() ? "-" : number(row.median(row.haul)),
                    number(row.of_limit()), number(row.planned),
                    row.peer.empty() ? "-" : number(row.median(row.peer)),
                    number(row.times_the_peer(), "x"), ids_text(row));
  }
  for (const BenchRow& row : rows) {
    if (!row.remark.empty()) text += fmt::format("{}: {}\n", row.name, row.remark);
    if (!row.ids.difference.empty()) text += fmt::format("{}: {}\n", row.name, row.ids.difference);
  }
  return text;
}

std::string bench_line(const BenchRow& row) {
  std::string line = row.name + ": ";
  line += row.haul.empty() ? "does not fit" : number(row.median(row.haul), " ") + row.unit;
  if (const auto share = row.of_limit()) {
    line += fmt::format(", {} of the limit, {}", number(share), number(row.limit));
  }
  if (row.planned) line += ", planned " + number(row.planned);
  if (row.peer.empty()) return line;
  line += ", the peer " + number(row.median(row.peer));
  if (const auto times = row.times_the_peer()) line += ", " + number(times, "x");
  line += ", ids " + ids_text(row);
  if (!row.ids.difference.empty()) line += ": " + row.ids.difference;
  return line;
}

core::Json to_json(const BenchRow& row) {
  core::Json json{
      {"name", row.name},
      {"unit", row.unit},
      {"limit", or_null(row.limit)},
      {"planned", or_null(row.planned)},
      {"haul", row.haul.empty() ? core::Json(nullptr) : core::Json(row.median(row.haul))},
      {"of_limit", or_null(row.of_limit())},
      {"peer", nullptr},
      {"times_the_peer", or_null(row.times_the_peer())},
      {"ids", nullptr},
      {"rounds", {{"haul", row.haul}, {"peer", row.peer}}}};
  if (!row.remark.empty()) json["remark"] = row.remark;
  if (row.peer.empty()) return json;
  json["peer"] = row.median(row.peer);
  if (row.haul.empty()) return json;
  json["ids"] = {{"same", row.ids.same}};
  if (row.ids.tie) {
    json["ids"]["tie_at"] = *row.ids.tie;
    json["ids"]["gap"] = row.ids.gap;
  }
  if (!row.ids.difference.empty()) json["ids"]["difference"] = row.ids.difference;
  return json;
}

}  // namespace haul::cli
