#pragma once

// Extended grapheme clusters, as the pinned peer finds them.

#include <cstddef>
#include <string_view>

namespace haul::tokenizers {

// Bytes of the cluster at the front. REQUIRES: well-formed, not empty.
std::size_t grapheme_size(std::string_view text);

}  // namespace haul::tokenizers
