#pragma once

// A folder that is whole or absent: filled under a temporary name beside its place and moved there
// at the end. What a killed process leaves is removed by the next one that writes to the same
// place; a folder that a running process still fills is left alone.

#include <filesystem>

namespace haul::core {

class OutputFolder {
 public:
  // Throws Error(kUsage) when something other than an empty folder is at `target`. Parents are
  // created.
  explicit OutputFolder(const std::filesystem::path& target);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  // Removes what was not committed.
  ~OutputFolder();

  // Where to write. Every file must be on disk (fsync) before commit.
  const std::filesystem::path& path() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int lock_ = -1;  // held on the temporary folder as long as it is being filled
};

}  // namespace haul::core
