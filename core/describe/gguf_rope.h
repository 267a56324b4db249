#pragma once

#include <cstdint>

#include "core/base/json.h"
#include "core/describe/gguf_source.h"

namespace haul::core {

// The "rope_scaling" of a config: linear and YaRN from the metadata, Llama 3's from the table of
// factors that the conversion made of it. Null where nothing is scaled; Error(kUnsupported) for any
// other kind.
Json gguf_rope_scaling(const GgufSource& source, double theta, std::int64_t head_size);

}  // namespace haul::core
