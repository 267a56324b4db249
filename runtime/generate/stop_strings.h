#pragma once

// Cuts text, as it comes, before the first of some strings to be complete; of those that end at the
// same place, before the longest. What might be the beginning of one is held back until it is not.

#include <string>
#include <string_view>
#include <vector>

namespace haul::runtime {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);

  // What can be shown now. Nothing more after one was found.
  std::string push(std::string_view text);
  // What was held back, at the end.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::size_t held_back() const;

  std::vector<std::string> strings_;
  std::string pending_;
  bool found_ = false;
};

}  // namespace haul::runtime
