#pragma once

// Where a user's files lie, as the environment says. Not while another thread changes it.

#include <filesystem>
#include <string>
#include <string_view>

namespace haul::core {

// A leading ~ and $NAME or ${NAME} replaced; unknown names stay as they are.
std::string expand_path(std::string_view text);

// HF_HOME, else huggingface in XDG_CACHE_HOME, which is ~/.cache: the folder that the peers share.
std::filesystem::path hf_home();

}  // namespace haul::core
