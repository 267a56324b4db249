#pragma once

#include <cstdint>
#include <string_view>

#include "core/describe/config_reader.h"
#include "haul/description.h"

namespace haul::core {

// The module "rotary_emb" with the tables that Transformers keeps for a head of this size, whatever
// kind of scaling the config's rope_parameters (or older rope_scaling) ask for.
ModuleSpec rotary_embedding(const ConfigReader& config, std::string_view class_name,
                            std::int64_t head_size);

}  // namespace haul::core
