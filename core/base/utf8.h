#pragma once

#include <string_view>

namespace haul::core {

// Whether the text is well-formed UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace haul::core
