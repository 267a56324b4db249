#pragma once

#include <string>
#include <string_view>

namespace haul::core {

// Text from a file, fit for a message on a terminal: between single quotes, with control characters
// and what is not UTF-8 escaped, cut after 200 bytes.
std::string quote(std::string_view text);

}  // namespace haul::core
