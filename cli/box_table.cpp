#include "cli/box_table.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace haul::cli {
namespace {

// Characters, not bytes: a model's name may hold any.
std::size_t length(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

// An odd space more goes to the right of an even width and to the left of an odd one.
std::string centred(std::string_view text, std::size_t width) {
  const std::size_t margin = width - std::min(width, length(text));
  const std::size_t left = margin / 2 + (margin & width & 1);
  return std::string(left, ' ') + std::string(text) + std::string(margin - left, ' ');
}

std::string line(const std::vector<std::size_t>& widths, std::string_view left,
                 std::string_view middle, std::string_view right) {
  std::string result(left);
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (i > 0) result += middle;
    for (std::size_t k = 0; k < widths[i]; ++k) result += "─";
  }
  return result.append(right);
}

std::string cells(const std::vector<std::size_t>& widths, const std::vector<std::string>& texts) {
  std::string result = "│";
  for (std::size_t i = 0; i < widths.size(); ++i) result += centred(texts[i], widths[i]) + "│";
  return result;
}

}  // namespace

std::string box_table(const std::string& title, const std::vector<std::string>& headers,
                      const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    std::size_t width = length(headers[i]);
    for (const auto& row : rows) width = std::max(width, length(row[i]));
    widths.push_back(width);
    sum += width;
  }
  const std::size_t drawn = sum + widths.size() + 1;
  if (length(title) > sum) {
    const std::size_t apart = std::max(length(title), drawn) - std::min(length(title), drawn);
    widths.back() += 2 * apart;
    sum += 2 * apart;
  }
  const std::size_t inside = sum + widths.size() - 1;
  std::string result = line(widths, "┌", "─", "┐") + "\n│" + centred(title, inside) + "│\n" +
                       line(widths, "├", "┬", "┤") + "\n" + cells(widths, headers) + "\n" +
                       line(widths, "├", "┼", "┤") + "\n";
  for (const auto& row : rows) result += cells(widths, row) + "\n";
  return result + line(widths, "└", "┴", "┘");
}

}  // namespace haul::cli
