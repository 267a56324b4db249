#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "haul/tokenizer.h"

namespace haul::cli {

// "1,2,3". Throws Error(kUsage) that names the flag.
std::vector<TokenId> parse_ids(std::string_view flag, const std::string& text);

}  // namespace haul::cli
