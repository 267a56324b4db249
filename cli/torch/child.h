#pragma once

// A program that a verb runs beside itself to measure it: a process of its own, from its start to
// its end.

#include <filesystem>
#include <string>
#include <vector>

#include "haul/bytes.h"

namespace haul::cli {

struct ChildEnd {
  int exit_code = 0;        // 128 + the signal's number where one ended it
  std::string out;          // all of its stdout
  std::string err;          // the end of its stderr
  double first_output = 0;  // seconds from its start to its first words on stdout
};

// Processes that together may have so much memory, their page cache included. Needs the right to
// make a cgroup, which root has.
class MemoryGroup {
 public:
  // Throws Error(kResource) that says what was refused.
  explicit MemoryGroup(Bytes limit);
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup();

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

// Until it has ended; ends it when Ctrl-C comes. Throws Error(kResource) where it cannot be
// started.
ChildEnd run_child(std::vector<std::string> command, const MemoryGroup* group = nullptr);

}  // namespace haul::cli
