#pragma once

// A table drawn with lines, laid out to the character as `accelerate estimate-memory` lays out its
// own.

#include <string>
#include <vector>

namespace haul::cli {

// REQUIRES: every row has as many cells as there are headers. No trailing newline.
std::string box_table(const std::string& title, const std::vector<std::string>& headers,
                      const std::vector<std::vector<std::string>>& rows);

}  // namespace haul::cli
