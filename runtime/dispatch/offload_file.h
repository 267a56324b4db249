#pragma once

// The file in an offload folder that holds weights which no other file holds as they are needed.

#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "runtime/dispatch/build.h"

namespace haul::runtime {

struct OffloadFile {
  std::map<std::size_t, UnitSource::FileRange> ranges;  // where each unit lies
  // Where the source has no identity, the file is of no use to a later run: it goes with this.
  std::shared_ptr<const void> owner;
};

// Writes the units, or finds the file that an earlier run wrote from the same source. The file
// appears when it is complete and never before; its name and its header hold a hash of the source's
// identity and of all names, shapes and dtypes, so another model's is never taken for it. What
// processes that were killed have left in the folder is removed. Throws Error that names the file.
OffloadFile write_offload_file(const std::filesystem::path& folder,
                               const std::vector<std::size_t>& units, const PlacedModel& placed,
                               const UnitSource& source);

}  // namespace haul::runtime
