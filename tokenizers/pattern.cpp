#include "tokenizers/pattern.h"

#include <algorithm>
#include <mutex>

#include <fmt/format.h>
#include <oniguruma.h>

#include "haul/error.h"
#include "tokenizers/unicode.h"

namespace haul::tokenizers {
namespace {

void prepare_engine() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
}

// A set of characters as the engine writes one.
std::string set_text(const std::vector<std::uint32_t>& ranges, bool negated) {
  std::string text = negated ? "[^" : "[";
  for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
    fmt::format_to(std::back_inserter(text), "\\x{{{:x}}}-\\x{{{:x}}}", ranges[i],
                   ranges[i + 1] - 1);
  }
  return text += ']';
}

// Spells out the properties of characters, because the engine's own tables are of another version.
std::string translate(std::string_view expression) {
  std::string out;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] != '\\' || i + 1 >= expression.size()) {
      out.push_back(expression[i]);
      continue;
    }
    const char kind = expression[++i];
    const std::size_t close = expression.find('}', i);
    std::vector<std::uint32_t> ranges;
    bool negated = kind == 'P' || kind == 'S' || kind == 'W' || kind == 'D';
    if (kind == 's' || kind == 'S') {
      ranges = pattern_ranges("Space");
    } else if (kind == 'w' || kind == 'W') {
      ranges = pattern_ranges("Word");
    } else if (kind == 'd' || kind == 'D') {
      ranges = pattern_ranges("Nd");
    } else if ((kind == 'p' || kind == 'P') && expression.substr(i + 1, 1) == "{" &&
               close != std::string_view::npos) {
      std::string_view name = expression.substr(i + 2, close - i - 2);
      if (name.starts_with('^')) {
        negated = !negated;
        name.remove_prefix(1);
      }
      if (name != "Space" && name != "Word") ranges = pattern_ranges(name);
      if (!ranges.empty()) i = close;
    }
    if (ranges.empty()) {
      out += {'\\', kind};
    } else {
      out += set_text(ranges, negated);
    }
  }
  return out;
}

std::string message(int code, OnigErrorInfo* info = nullptr) {
  OnigUChar buffer[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int size = info == nullptr ? onig_error_code_to_str(buffer, code)
                                   : onig_error_code_to_str(buffer, code, info);
  return {reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(size)};
}

class Regex final : public Pattern {
 public:
  explicit Regex(std::string_view expression) : expression_(expression) {
    prepare_engine();
    const std::string text = translate(expression);
    const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
    OnigErrorInfo info{};
    const int code = onig_new(&regex_, begin, begin + text.size(), ONIG_OPTION_NONE,
                              ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
    if (code != ONIG_NORMAL) {
      throw Error(ErrorKind::kCorrupt, fmt::format("the pattern '{}' does not compile: {}",
                                                   expression_, message(code, &info)));
    }
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  ~Regex() override { onig_free(regex_); }

  void find(std::string_view text, std::vector<Match>& matches) const override {
    const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(
        onig_region_new(), [](OnigRegion* r) { onig_region_free(r, 1); });
    const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
    const auto* end = begin + text.size();
    std::size_t from = 0;
    std::size_t covered = 0;
    bool matched = false;  // so that `covered` is where the last match ended
    while (from <= text.size() && !text.empty()) {
      const int code =
          onig_search(regex_, begin, end, begin + from, end, region.get(), ONIG_OPTION_NONE);
      if (code == ONIG_MISMATCH) break;
      if (code < 0) {
        throw Error(ErrorKind::kUnsupported, fmt::format("matching the pattern '{}' failed: {}",
                                                         expression_, message(code)));
      }
      const auto first = static_cast<std::size_t>(region->beg[0]);
      const auto last = static_cast<std::size_t>(region->end[0]);
      if (first == last && matched && last == covered) {
        // An empty match right after a match does not count.
        from += from < text.size() ? utf8_size(text[from]) : 1;
        continue;
      }
      if (covered < first) matches.push_back({covered, first, false});
      matches.push_back({first, last, true});
      from = covered = last;
      matched = true;
    }
    if (covered < text.size()) matches.push_back({covered, text.size(), false});
  }

 private:
  std::string expression_;
  regex_t* regex_ = nullptr;
};

class Literal : public Pattern {
 public:
  explicit Literal(std::string text) : text_(std::move(text)) {}

  void find(std::string_view text, std::vector<Match>& matches) const override {
    find_strings(text, matches, [](std::size_t end) { return end; });
  }
  bool is_in(std::string_view text) const override {
    return text.find(text_) != std::string_view::npos;
  }

 protected:
  // Each occurrence of the text as far as extend(its end) says.
  template <class Extend>
  void find_strings(std::string_view text, std::vector<Match>& matches, Extend&& extend) const {
    std::size_t covered = 0;
    for (std::size_t at = text.find(text_); at != std::string_view::npos;
         at = text.find(text_, covered)) {
      if (covered < at) matches.push_back({covered, at, false});
      covered = extend(at + text_.size());
      matches.push_back({at, covered, true});
    }
    if (covered < text.size()) matches.push_back({covered, text.size(), false});
  }

 private:
  std::string text_;
};

class SpaceRuns final : public Literal {
 public:
  SpaceRuns() : Literal("  ") {}

  void find(std::string_view text, std::vector<Match>& matches) const override {
    find_strings(text, matches, [text](std::size_t end) {
      return std::min(text.find_first_not_of(' ', end), text.size());
    });
  }
};

}  // namespace

bool Pattern::is_in(std::string_view text) const {
  std::vector<Match> matches;
  find(text, matches);
  return std::any_of(matches.begin(), matches.end(), [](const Match& m) { return m.is_match; });
}

std::unique_ptr<Pattern> make_regex(std::string_view expression) {
  return std::make_unique<Regex>(expression);
}

std::unique_ptr<Pattern> make_space_runs() {
  return std::make_unique<SpaceRuns>();
}

std::unique_ptr<Pattern> make_literal(std::string text) {
  if (text.empty()) return make_regex("");
  return std::make_unique<Literal>(std::move(text));
}

void apply(SplitBehavior behavior, std::vector<Match>& matches) {
  std::size_t kept = 0;
  bool previous = false;
  const auto keep = [&](Match match) { matches[kept++] = {match.begin, match.end, false}; };
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (Match& match : matches) match.is_match = false;
      return;
    case SplitBehavior::kRemoved:
      for (const Match& match : matches) {
        if (!match.is_match) keep(match);
      }
      break;
    case SplitBehavior::kContiguous:
    case SplitBehavior::kMergedWithPrevious:
      for (const Match match : std::vector<Match>(matches)) {
        const bool joins = behavior == SplitBehavior::kContiguous ? match.is_match == previous
                                                                  : match.is_match && !previous;
        if (joins && kept > 0) {
          matches[kept - 1].end = match.end;
        } else {
          keep(match);
        }
        previous = match.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext: {
      // From the back, so that a match joins what follows it.
      std::vector<Match> reversed;
      for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
        if (match->is_match && !previous && !reversed.empty()) {
          reversed.back().begin = match->begin;
        } else {
          reversed.push_back({match->begin, match->end, false});
        }
        previous = match->is_match;
      }
      matches.assign(reversed.rbegin(), reversed.rend());
      return;
    }
  }
  matches.resize(kept);
}

}  // namespace haul::tokenizers
