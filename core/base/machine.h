#pragma once

// What this machine has free: GPU memory, RAM and disk. RAM is what the kernel calls available,
// less where a memory cgroup (v1 or v2, at any level) leaves less, and shared out among the local
// processes of a launcher. GPUs are asked through the driver's library, loaded when it is there.
// Any thread. What cannot be read counts as absent; nothing here throws.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "haul/bytes.h"

namespace haul::core {

struct GpuMemory {
  std::string uuid;  // "GPU-…"
  std::string name;
  Bytes total = 0;
  Bytes free = 0;
};

// The operating system as the functions below see it; tests give another one.
struct Os {
  std::filesystem::path root = "/";  // above /proc and /sys
  std::function<std::optional<std::string>(const std::string&)> variable;
  std::function<std::vector<GpuMemory>()> gpus;  // all of them, in the driver's order
};
Os this_os();

struct Machine {
  std::vector<GpuMemory> gpus;  // the visible ones; a GPU's place here is its device number
  Bytes ram = 0;                // this process's share
  int local_processes = 1;
  int local_rank = 0;  // of this process among them
};
Machine read_machine(const Os& os);

// What of a GPU's memory is this process's, when the local processes have one GPU or several each,
// or several of them one: nothing of a GPU that is another's. `gpus` is how many there are.
Bytes gpu_share(const Machine& machine, int gpu, int gpus, Bytes free);

// CUDA_VISIBLE_DEVICES as CUDA reads it: numbers or the beginnings of UUIDs; the list ends at the
// first entry that names no GPU or one for the second time.
std::vector<GpuMemory> visible_gpus(const std::vector<GpuMemory>& all,
                                    const std::optional<std::string>& visible);

// Available RAM under all limits, before it is shared out.
Bytes available_ram(const std::filesystem::path& root);

// Free for this user where the folder is, or will be; 0 when it cannot be told.
Bytes free_disk(const std::filesystem::path& folder);

}  // namespace haul::core
