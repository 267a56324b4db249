#include "core/launch/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxCpu = 1 << 16;

// "0-3,8,10-11" as the kernel writes it; what is not that ends the list.
std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc{}) break;
    int last = first;
    at = read.ptr;
    if (at < end && *at == '-') {
      read = std::from_chars(at + 1, end, last);
      if (read.ec != std::errc{}) break;
      at = read.ptr;
    }
    if (first < 0 || last > kMaxCpu) break;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at == end || *at != ',') break;
    ++at;
  }
  return cpus;
}

std::vector<int> read_cpu_list(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_cpu_list(line);
}

std::map<int, int> read_nodes(const fs::path& root) {
  std::map<int, int> node_of;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    int node = 0;
    if (!name.starts_with("node")) continue;
    const auto [stop, code] = std::from_chars(name.data() + 4, name.data() + name.size(), node);
    if (code != std::errc{} || stop != name.data() + name.size()) continue;
    for (const int cpu : read_cpu_list(entry.path() / "cpulist")) node_of[cpu] = node;
  }
  return node_of;
}

// Cores of each node, in the nodes' order.
std::vector<std::vector<CpuCore>> by_node(const std::vector<CpuCore>& cores) {
  std::map<int, std::vector<CpuCore>> nodes;
  for (const CpuCore& core : cores) nodes[core.node].push_back(core);
  std::vector<std::vector<CpuCore>> result;
  result.reserve(nodes.size());
  for (auto& [node, list] : nodes) result.push_back(std::move(list));
  return result;
}

void append(const CpuCore& core, std::vector<int>& cpus) {
  cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
}

// How many processes each node gets: the next one always goes where most cores remain for it.
std::vector<int> processes_of_nodes(const std::vector<std::vector<CpuCore>>& nodes, int processes) {
  std::vector<int> count(nodes.size(), 0);
  for (int i = 0; i < processes; ++i) {
    std::size_t best = 0;
    for (std::size_t n = 1; n < nodes.size(); ++n) {
      if (nodes[n].size() * static_cast<std::size_t>(count[best] + 1) >
          nodes[best].size() * static_cast<std::size_t>(count[n] + 1)) {
        best = n;
      }
    }
    ++count[best];
  }
  return count;
}

void share_node(const std::vector<CpuCore>& cores, int processes,
                std::vector<std::vector<int>>& result) {
  const auto parts = static_cast<std::size_t>(processes);
  for (std::size_t p = 0; p < parts; ++p) {
    std::vector<int> cpus;
    if (parts > cores.size()) {
      append(cores[p % cores.size()], cpus);
    } else {
      const std::size_t end = (p + 1) * cores.size() / parts;
      for (std::size_t c = p * cores.size() / parts; c < end; ++c) append(cores[c], cpus);
    }
    std::sort(cpus.begin(), cpus.end());
    result.push_back(std::move(cpus));
  }
}

}  // namespace

std::vector<CpuCore> read_cores(const fs::path& root, const std::vector<int>& allowed) {
  const std::set<int> usable(allowed.begin(), allowed.end());
  const std::map<int, int> node_of = read_nodes(root);
  std::set<int> seen;
  std::vector<CpuCore> cores;
  for (const int cpu : usable) {
    if (seen.count(cpu) > 0) continue;
    CpuCore core;
    const auto node = node_of.find(cpu);
    if (node != node_of.end()) core.node = node->second;
    const fs::path topology = root / fmt::format("sys/devices/system/cpu/cpu{}/topology", cpu);
    std::vector<int> siblings = read_cpu_list(topology / "thread_siblings_list");
    siblings.push_back(cpu);
    for (const int sibling : siblings) {
      if (usable.count(sibling) > 0 && seen.insert(sibling).second) core.cpus.push_back(sibling);
    }
    std::sort(core.cpus.begin(), core.cpus.end());
    cores.push_back(std::move(core));
  }
  std::stable_sort(cores.begin(), cores.end(),
                   [](const CpuCore& a, const CpuCore& b) { return a.node < b.node; });
  return cores;
}

std::vector<int> allowed_cpus() {
  std::vector<int> result;
  // The kernel refuses a set that is smaller than its own.
  for (int size = 1024; size <= kMaxCpu; size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(size));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    const bool known = set != nullptr && ::sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) result.push_back(cpu);
    }
    CPU_FREE(set);
    if (known) break;
  }
  return result;
}

std::vector<std::vector<int>> share_cores(const std::vector<CpuCore>& cores, int processes) {
  std::vector<std::vector<int>> result;
  if (cores.empty() || processes < 1) return result;
  const auto nodes = by_node(cores);
  const auto parts = static_cast<std::size_t>(processes);
  if (parts < nodes.size()) {
    for (std::size_t p = 0; p < parts; ++p) {
      std::vector<int> cpus;
      const std::size_t end = (p + 1) * nodes.size() / parts;
      for (std::size_t n = p * nodes.size() / parts; n < end; ++n) {
        for (const CpuCore& core : nodes[n]) append(core, cpus);
      }
      std::sort(cpus.begin(), cpus.end());
      result.push_back(std::move(cpus));
    }
    return result;
  }
  const std::vector<int> counts = processes_of_nodes(nodes, processes);
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (counts[n] > 0) share_node(nodes[n], counts[n], result);
  }
  return result;
}

}  // namespace haul::core
