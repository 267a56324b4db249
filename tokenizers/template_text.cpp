#include "tokenizers/template_text.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers::jinja {
namespace {

// Characters that change by the same difference, `step` apart.
struct CaseRange {
  char32_t first, last;
  int step;
  int difference;
};

struct CaseExpansion {
  char32_t point;
  char32_t text[3];
};

#include "tokenizers/upper_data.inc"

struct CategoryRange {
  char32_t first, end;
  Category category;
};

std::vector<CategoryRange> category_ranges() {
  static constexpr std::pair<const char*, Category> kNames[] = {
      {"Lu", Category::kLu}, {"Ll", Category::kLl}, {"Lt", Category::kLt}, {"Lm", Category::kLm},
      {"Lo", Category::kLo}, {"Mn", Category::kMn}, {"Mc", Category::kMc}, {"Me", Category::kMe},
      {"Nd", Category::kNd}, {"Nl", Category::kNl}, {"No", Category::kNo}, {"P", Category::kPo},
      {"S", Category::kSo},  {"Zs", Category::kZs}, {"Zl", Category::kZl}, {"Zp", Category::kZp},
      {"Cc", Category::kCc}, {"Cf", Category::kCf}, {"Co", Category::kCo}};
  std::vector<CategoryRange> ranges;
  for (const auto& [name, category] : kNames) {
    const std::vector<std::uint32_t> found = pattern_ranges(name);
    for (std::size_t i = 0; i + 1 < found.size(); i += 2) {
      ranges.push_back({found[i], found[i + 1], category});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const CategoryRange& a, const CategoryRange& b) { return a.first < b.first; });
  return ranges;
}

// All kinds of punctuation are kPo here, all kinds of symbols kSo.
Category category_of(char32_t point) {
  static const std::vector<CategoryRange> ranges = category_ranges();
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), point,
                       [](char32_t p, const CategoryRange& range) { return p < range.first; });
  if (after == ranges.begin() || point >= std::prev(after)->end) return Category::kCn;
  return std::prev(after)->category;
}

void append_case(std::string& out, char32_t point, std::span<const CaseRange> ranges,
                 std::span<const CaseExpansion> expansions) {
  const auto expansion =
      std::lower_bound(expansions.begin(), expansions.end(), point,
                       [](const CaseExpansion& row, char32_t p) { return row.point < p; });
  if (expansion != expansions.end() && expansion->point == point) {
    for (const char32_t other : expansion->text) {
      if (other != 0) append_utf8(out, other);
    }
    return;
  }
  const auto range =
      std::lower_bound(ranges.begin(), ranges.end(), point,
                       [](const CaseRange& row, char32_t p) { return row.last < p; });
  const bool within = range != ranges.end() && point >= range->first &&
                      (point - range->first) % static_cast<char32_t>(range->step) == 0;
  append_utf8(out,
              within ? static_cast<char32_t>(static_cast<int>(point) + range->difference) : point);
}

void append_upper(std::string& out, char32_t point) {
  append_case(out, point, kUpperRanges, kUpperExpansions);
}

void append_title(std::string& out, char32_t point) {
  append_case(out, point, kTitleRanges, kTitleExpansions);
}

void append_lower(std::string& out, char32_t point) {
  append_utf8(out, to_lower(point));
  if (point == kDottedCapitalI) append_utf8(out, kCombiningDotAbove);
}

bool is_cased(char32_t point) {
  const Category category = category_of(point);
  return category == Category::kLu || category == Category::kLl || category == Category::kLt;
}

constexpr char32_t kSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

// A sigma that ends a word has a form of its own.
bool ends_word(std::string_view text, std::size_t at) {
  const auto ignorable = [](char32_t point) {
    const Category category = category_of(point);
    return category == Category::kMn || category == Category::kMe || category == Category::kCf ||
           category == Category::kLm || point == '^' || point == '`' || point == '\'' ||
           point == '.' || point == ':' || point == 0xB7 || point == 0x2019;
  };
  const char* before = text.data() + at;
  bool cased = false;
  while (before > text.data() && !cased) {
    before = utf8_previous(before);
    cased = is_cased(utf8_point(before));
    if (!cased && !ignorable(utf8_point(before))) return false;
  }
  if (!cased) return false;
  for (std::size_t i = at + utf8_size(text[at]); i < text.size(); i += utf8_size(text[i])) {
    const char32_t point = utf8_point(&text[i]);
    if (is_cased(point)) return false;
    if (!ignorable(point)) return true;
  }
  return true;
}

template <class Test>
bool only(std::string_view text, bool (*wanted)(char32_t), Test unwanted) {
  bool any = false;
  for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
    const char32_t point = utf8_point(&text[i]);
    if (unwanted(point)) return false;
    any = any || wanted(point);
  }
  return any;
}

bool is_lower_point(char32_t point) {
  return category_of(point) == Category::kLl || point == 0xAA || point == 0xBA;
}

bool is_upper_point(char32_t point) {
  return category_of(point) == Category::kLu;
}

bool is_title_point(char32_t point) {
  return category_of(point) == Category::kLt;
}

}  // namespace

bool is_printable(char32_t point) {
  if (point < 0x7F) return point >= 0x20;
  switch (category_of(point)) {
    case Category::kCc:
    case Category::kCf:
    case Category::kCs:
    case Category::kCo:
    case Category::kCn:
    case Category::kZs:
    case Category::kZl:
    case Category::kZp:
      return false;
    default:
      return true;
  }
}

bool is_white(char32_t point) {
  return is_space(point) || (point >= 0x1C && point <= 0x1F);
}

std::string upper(std::string_view text) {
  std::string out;
  for_each_point(text, [&](char32_t point) { append_upper(out, point); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
    const char32_t point = utf8_point(&text[i]);
    if (point == kSigma && ends_word(text, i)) {
      append_utf8(out, kFinalSigma);
    } else {
      append_lower(out, point);
    }
  }
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = utf8_size(text[0]);
  std::string out;
  append_title(out, utf8_point(text.data()));
  return out + lower(text.substr(first));
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each_point(text, [&](char32_t point) {
    if (inside) {
      append_lower(out, point);
    } else {
      append_title(out, point);
    }
    inside = is_cased(point);
  });
  return out;
}

std::string title_words(std::string_view text) {
  const auto opens = [](char32_t point) {
    return is_white(point) || point == '-' || point == '(' || point == '{' || point == '[' ||
           point == '<';
  };
  std::string out;
  std::size_t word = 0;
  const auto flush = [&](std::size_t end) {
    if (end == word) return;
    const std::string_view piece = text.substr(word, end - word);
    append_upper(out, utf8_point(piece.data()));
    out += lower(piece.substr(utf8_size(piece[0])));
  };
  for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
    if (!opens(utf8_point(&text[i]))) continue;
    flush(i);
    word = i + utf8_size(text[i]);
    out += text.substr(i, utf8_size(text[i]));
  }
  flush(text.size());
  return out;
}

std::string swapcase(std::string_view text) {
  std::string out;
  for_each_point(text, [&](char32_t point) {
    if (is_upper_point(point)) {
      append_lower(out, point);
    } else {
      append_upper(out, point);
    }
  });
  return out;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> set, Side side) {
  const auto goes = [&](const char* at) {
    if (!set) return is_white(utf8_point(at));
    const std::string_view point(at, utf8_size(*at));
    for (std::size_t i = 0; i < set->size(); i += utf8_size((*set)[i])) {
      if (set->substr(i, utf8_size((*set)[i])) == point) return true;
    }
    return false;
  };
  if (side != Side::kRight) {
    while (!text.empty() && goes(text.data())) text.remove_prefix(utf8_size(text[0]));
  }
  if (side != Side::kLeft) {
    while (!text.empty()) {
      const char* last = utf8_previous(text.data() + text.size());
      if (!goes(last)) break;
      text = text.substr(0, static_cast<std::size_t>(last - text.data()));
    }
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  const auto more = [&] { return limit < 0 || static_cast<std::int64_t>(parts.size()) < limit; };
  if (!from_right) {
    for (std::size_t at; more() && (at = text.find(separator)) != text.npos;) {
      parts.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
    }
    parts.push_back(text);
    return parts;
  }
  for (std::size_t at; more() && (at = text.rfind(separator)) != text.npos;) {
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_white(std::string_view text, std::int64_t limit,
                                          bool from_right) {
  std::vector<std::string_view> parts;
  const Side side = from_right ? Side::kRight : Side::kLeft;
  for (text = strip(text, std::nullopt, side); !text.empty();
       text = strip(text, std::nullopt, side)) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    }
    if (from_right) {
      const char* at = text.data() + text.size();
      while (at > text.data() && !is_white(utf8_point(utf8_previous(at)))) at = utf8_previous(at);
      const auto begin = static_cast<std::size_t>(at - text.data());
      parts.push_back(text.substr(begin));
      text = text.substr(0, begin);
    } else {
      std::size_t end = 0;
      while (end < text.size() && !is_white(utf8_point(&text[end]))) end += utf8_size(text[end]);
      parts.push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  const auto breaks = [](char32_t point) {
    return (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
           point == 0x2028 || point == 0x2029;
  };
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t point = utf8_point(&text[i]);
    std::size_t next = i + utf8_size(text[i]);
    if (breaks(point)) {
      if (point == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : i) - begin));
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::size_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return count_points(text) + 1;
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

std::string replace(std::string_view text, std::string_view old, std::string_view with,
                    std::int64_t limit, Budget& budget) {
  const std::size_t found = count(text, old);
  const std::size_t times = limit < 0 ? found : std::min(found, static_cast<std::size_t>(limit));
  budget.step(times);
  budget.allocate(text.size() + times * with.size());
  std::string out;
  out.reserve(text.size() + times * with.size());
  std::size_t done = 0;
  std::size_t at = 0;
  if (old.empty()) {
    while (done < times) {
      out += with;
      ++done;
      if (at == text.size()) break;
      out += text.substr(at, utf8_size(text[at]));
      at += utf8_size(text[at]);
    }
    return out += text.substr(at);
  }
  for (; done < times; ++done) {
    const std::size_t next = text.find(old, at);
    out += text.substr(at, next - at);
    out += with;
    at = next + old.size();
  }
  return out += text.substr(at);
}

bool is_alpha(char32_t point) {
  const Category category = category_of(point);
  return category >= Category::kLu && category <= Category::kLo;
}

bool is_digit(char32_t point) {
  return category_of(point) == Category::kNd || point == 0xB2 || point == 0xB3 || point == 0xB9 ||
         (point >= 0x2070 && point <= 0x2089 && point != 0x2071);
}

bool is_numeric(char32_t point) {
  const Category category = category_of(point);
  return category == Category::kNd || category == Category::kNl || category == Category::kNo;
}

bool is_word(char32_t point) {
  return is_alpha(point) || is_numeric(point) || point == '_';
}

bool is_lower(std::string_view text) {
  return only(text, is_lower_point,
              [](char32_t point) { return is_upper_point(point) || is_title_point(point); });
}

bool is_upper(std::string_view text) {
  return only(text, is_upper_point,
              [](char32_t point) { return is_lower_point(point) || is_title_point(point); });
}

std::size_t count_words(std::string_view text) {
  std::size_t words = 0;
  bool inside = false;
  for_each_point(text, [&](char32_t point) {
    const bool word = is_word(point);
    words += word && !inside;
    inside = word;
  });
  return words;
}

std::string_view characters(std::string_view text, std::size_t first, std::size_t last) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < first; ++i) begin += utf8_size(text[begin]);
  std::size_t end = begin;
  for (std::size_t i = first; i < last; ++i) end += utf8_size(text[end]);
  return text.substr(begin, end - begin);
}

}  // namespace haul::tokenizers::jinja
