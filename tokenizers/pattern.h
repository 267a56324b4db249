#pragma once

// What splits or replaces text: a regular expression, a literal, or a predicate on characters,
// all as the list of its matches and of the parts between them.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace haul::tokenizers {

// Bytes of a text; a list of these covers the text in order.
struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

// Immutable after construction; from any thread.
class Pattern {
 public:
  virtual ~Pattern() = default;
  // REQUIRES: well-formed text. Appends.
  virtual void find(std::string_view text, std::vector<Match>& matches) const = 0;
  // Whether there is a match.
  virtual bool is_in(std::string_view text) const;
};

// An expression in Oniguruma's syntax, with \s, \w, \d, general categories and the common scripts
// as the pinned peer knows them. Throws Error(kCorrupt) when it does not compile; find() throws
// Error(kUnsupported) when matching exceeds the engine's limits.
std::unique_ptr<Pattern> make_regex(std::string_view expression);
// Every occurrence of the text; an empty one matches between all characters.
std::unique_ptr<Pattern> make_literal(std::string text);
// Two spaces or more.
std::unique_ptr<Pattern> make_space_runs();

// Each character for which the predicate holds is a match of its own.
template <class Predicate>
void find_points(std::string_view text, Predicate&& holds, std::vector<Match>& matches);

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Turns matches into the parts that remain, in place; is_match is then false throughout.
void apply(SplitBehavior behavior, std::vector<Match>& matches);

}  // namespace haul::tokenizers

#include "tokenizers/utf8.h"

template <class Predicate>
void haul::tokenizers::find_points(std::string_view text, Predicate&& holds,
                                   std::vector<Match>& matches) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = utf8_size(text[i]);
    if (holds(utf8_point(&text[i]))) {
      if (last < i) matches.push_back({last, i, false});
      matches.push_back({i, i + size, true});
      last = i + size;
    }
    i += size;
  }
  if (last < text.size()) matches.push_back({last, text.size(), false});
}
