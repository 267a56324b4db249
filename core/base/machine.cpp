#include "core/base/machine.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/base/nvml.h"

namespace haul::core {
namespace {

std::optional<std::string> file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<Bytes> number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  Bytes value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || stop == text.data()) return std::nullopt;
  return value;
}

// The number after `key` at the start of a line.
std::optional<Bytes> field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return number(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  // In memory.stat: pages of files, which the kernel gives up, those first that were read once.
  const char* read_once;
  const char* read_again;
};
constexpr CgroupFiles kV1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
                          "total_active_file "};
constexpr CgroupFiles kV2{"memory.max", "memory.current", "inactive_file ", "active_file "};

// What a folder of the hierarchy still allows; nothing when it sets no limit.
std::optional<Bytes> room(const std::filesystem::path& folder, const CgroupFiles& files) {
  const auto limit_text = file_text(folder / files.limit);
  if (!limit_text) return std::nullopt;
  const auto limit = number(*limit_text);  // "max" is no number
  if (!limit) return std::nullopt;
  Bytes usage = 0;
  if (const auto text = file_text(folder / files.usage)) usage = number(*text).value_or(0);
  if (const auto stat = file_text(folder / "memory.stat")) {
    for (const char* const key : {files.read_once, files.read_again}) {
      usage -= std::min(usage, field(*stat, key).value_or(0));
    }
  }
  return *limit - std::min(*limit, usage);
}

Bytes smallest_room(const std::filesystem::path& mount, std::string path,
                    const CgroupFiles& files) {
  Bytes smallest = std::numeric_limits<Bytes>::max();
  // In a container the path can name folders that are not mounted: its parents still count.
  for (;;) {
    const std::string inside = path.starts_with('/') ? path.substr(1) : path;
    if (const auto bytes = room(mount / inside, files)) smallest = std::min(smallest, *bytes);
    if (inside.empty()) return smallest;
    path = std::filesystem::path(inside).parent_path().string();
  }
}

Bytes cgroup_room(const std::filesystem::path& root) {
  Bytes smallest = std::numeric_limits<Bytes>::max();
  const auto groups = file_text(root / "proc/self/cgroup");
  if (!groups) return smallest;
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::istringstream lines(*groups);
  for (std::string line; std::getline(lines, line);) {  // "4:memory:/a/b" or "0::/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      smallest = std::min(smallest, smallest_room(mount, path, kV2));
      smallest = std::min(smallest, smallest_room(mount / "unified", path, kV2));
    } else if (controllers.find(",memory,") != controllers.npos) {
      smallest = std::min(smallest, smallest_room(mount / "memory", path, kV1));
    }
  }
  return smallest;
}

}  // namespace

Os this_os() {
  Os os;
  os.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
  os.gpus = nvml_gpus;
  return os;
}

Machine read_machine(const Os& os) {
  Machine machine;
  machine.gpus = visible_gpus(os.gpus(), os.variable("CUDA_VISIBLE_DEVICES"));
  if (const auto text = os.variable("LOCAL_WORLD_SIZE")) {
    const Bytes count = number(*text).value_or(1);
    machine.local_processes = static_cast<int>(std::clamp<Bytes>(count, 1, 4096));
  }
  if (const auto text = os.variable("LOCAL_RANK")) {
    machine.local_rank = static_cast<int>(std::min<Bytes>(
        number(*text).value_or(0), static_cast<Bytes>(machine.local_processes) - 1));
  }
  machine.ram = available_ram(os.root) / static_cast<Bytes>(machine.local_processes);
  return machine;
}

Bytes gpu_share(const Machine& machine, int gpu, int gpus, Bytes free) {
  const int processes = machine.local_processes;
  if (processes <= gpus) return gpu % processes == machine.local_rank ? free : 0;
  if (machine.local_rank % gpus != gpu) return 0;
  const int together = processes / gpus + (gpu < processes % gpus ? 1 : 0);
  return free / static_cast<Bytes>(together);
}

std::vector<GpuMemory> visible_gpus(const std::vector<GpuMemory>& all,
                                    const std::optional<std::string>& visible) {
  if (!visible) return all;
  std::vector<GpuMemory> result;
  std::istringstream items(*visible);
  for (std::string item; std::getline(items, item, ',');) {
    item.erase(std::remove(item.begin(), item.end(), ' '), item.end());
    const GpuMemory* found = nullptr;
    if (item.starts_with("GPU-")) {
      for (const GpuMemory& gpu : all) {
        if (!gpu.uuid.starts_with(item)) continue;
        if (found != nullptr) return result;  // two GPUs begin like this
        found = &gpu;
      }
    } else if (!item.empty() && item.find_first_not_of("0123456789") == item.npos) {
      const auto index = number(item);
      if (index && *index < all.size()) found = &all[*index];
    }
    if (found == nullptr) return result;
    for (const GpuMemory& taken : result) {
      if (taken.uuid == found->uuid) return {};
    }
    result.push_back(*found);
  }
  return result;
}

Bytes available_ram(const std::filesystem::path& root) {
  Bytes available = 0;
  if (const auto info = file_text(root / "proc/meminfo")) {
    const auto kilobytes = field(*info, "MemAvailable:");
    available = kilobytes.value_or(field(*info, "MemFree:").value_or(0)) * kKiB;
  }
  return std::min(available, cgroup_room(root));
}

Bytes free_disk(const std::filesystem::path& folder) {
  std::filesystem::path at = folder;
  std::error_code error;
  while (!at.empty() && !std::filesystem::exists(at, error)) {
    if (at == at.parent_path()) break;
    at = at.parent_path();
  }
  if (at.empty()) at = ".";
  const auto space = std::filesystem::space(at, error);
  return error ? 0 : space.available;
}

}  // namespace haul::core
