// A program that wakes the GPU as haul-torch does, and waits until it has as much memory as
// HAUL_PROBE_WAITS_FOR says.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/torch/early_memory.h"
#include "cli/torch/wake.h"

namespace {

double resident_bytes() {
  double pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr || std::fscanf(file, "%*s %lf", &pages) != 1) return 0;
  std::fclose(file);
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

int main() {
  haul::cli::wait_until_awake();
  const char* const wanted = std::getenv("HAUL_PROBE_WAITS_FOR");
  for (int i = 0; wanted != nullptr && resident_bytes() < std::atof(wanted) && i < 30'000; ++i) {
    ::usleep(1000);
  }
  const haul::cli::EarlyMemory early = haul::cli::early_memory();
  if (early.size > 0) {
    const bool zeros = std::all_of(early.data, early.data + early.size,
                                   [](std::byte b) { return b == std::byte{}; });
    std::printf("early %zu, brought %zu%s\n", early.size, early.brought,
                zeros ? "" : ", not zeros");
  }
  std::puts("main");
  return 0;
}
