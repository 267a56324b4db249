#pragma once

// Files of a model from the hub into the cache. A file appears under its name only when its size
// and its hash are right; one that was interrupted goes on where it stopped. Safe to run in several
// threads and processes at once.

#include <string>
#include <vector>

#include "core/hub/answers.h"
#include "core/hub/cache.h"
#include "core/hub/client.h"

namespace haul::core {

struct FetchedFile {
  std::string name;
  std::filesystem::path path;
  Bytes size = 0;
  bool fetched = false;  // false: it was here already
};

// Brings the files of one commit, a few at a time, with one progress bar. Checks first that they
// fit on the disk. Throws the first Error and stops the others; what is whole stays.
std::vector<FetchedFile> fetch_files(const HubClient& client, const ModelCache& cache,
                                     const std::string& repository, const std::string& commit,
                                     const std::vector<HubFile>& files);

// Asks the hub for a file's size and etag where a listing did not tell them.
void complete_entry(const HubClient& client, const Asked& asked, HubFile* file);

}  // namespace haul::core
