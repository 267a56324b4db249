#pragma once

// The file in an offload folder that holds weights which no other file holds as they are needed.

#include <filesystem>
#include <map>
#include <vector>

#include "runtime/dispatch/build.h"

namespace haul::runtime {

// Writes the units, or finds the file that an earlier run wrote from the same source, and tells
// where each lies. The file appears when it is complete and never before; its name and its header
// hold a hash of the source's identity and of all names, shapes and dtypes, so another model's is
// never taken for it.
std::map<std::size_t, UnitSource::FileRange> write_offload_file(
    const std::filesystem::path& folder, const std::vector<std::size_t>& units,
    const PlacedModel& placed, const UnitSource& source);

}  // namespace haul::runtime
