#pragma once

#include <string>

#include "core/base/json.h"

namespace haul::core {

// Of a plan's document without its "checksum": no secret, only a tell-tale of edits by hand.
std::string plan_checksum(const Json& plan);

}  // namespace haul::core
