#pragma once

#include <filesystem>

#include "haul/bytes.h"

namespace haul::core {

// For a folder that exists, before much is written to it. Throws Error(kResource) that names it,
// what is needed and what is free; a file system that does not tell what is free is not refused.
void require_disk_space(const std::filesystem::path& folder, Bytes needed);

}  // namespace haul::core
