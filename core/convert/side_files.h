#pragma once

// The files beside a model's weights: configs, tokenizer, chat template.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "haul/dtype.h"

namespace haul::core {

// Copies those that the folder `from` has and gives their names. With a dtype, config.json then
// names it as the type of the weights. Files of a tokenizer stay behind where `tokenizer` is false.
std::vector<std::string> copy_side_files(const std::filesystem::path& from,
                                         const std::filesystem::path& to,
                                         std::optional<Dtype> dtype, bool tokenizer);

}  // namespace haul::core
