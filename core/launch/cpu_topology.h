#pragma once

// Which cores the machine has, near which memory, and how they are shared out among processes. Any
// thread; nothing here throws.

#include <filesystem>
#include <optional>
#include <vector>

namespace haul::core {

struct CpuCore {
  int node = 0;           // of memory (NUMA)
  std::vector<int> cpus;  // its hardware threads, ascending
};

// Whole cores by node and first thread, of the threads in `allowed`. `root` stands above /sys. A
// machine that does not tell has one node and a core for each thread.
std::vector<CpuCore> read_cores(const std::filesystem::path& root, const std::vector<int>& allowed);

// The threads that this process may run on.
std::vector<int> allowed_cpus();

// A set of threads for each of `processes`, in order: whole cores, of one node each where there are
// at least as many processes as nodes (more processes where there are more cores), of whole nodes
// otherwise. With more processes than cores of a node, several share one. None without cores.
std::vector<std::vector<int>> share_cores(const std::vector<CpuCore>& cores, int processes);

}  // namespace haul::core
