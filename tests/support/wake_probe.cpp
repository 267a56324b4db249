// A program that wakes the GPU as haul-torch does, and waits until it has as much memory as
// HAUL_PROBE_WAITS_FOR says, and no more comes.

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
  double resident = 0;
  int steady = 0;
  for (int i = 0; wanted != nullptr && steady < 500 && i < 30'000; ++i, ++steady) {
    ::usleep(1000);
    const double now = resident_bytes();
    if (now < std::atof(wanted) || now > resident) steady = 0;
    resident = now;
  }
  const haul::cli::EarlyMemory early = haul::cli::early_memory();
  if (early.size > 0) {
    const bool zeros = std::all_of(early.data, early.data + early.brought,
                                   [](std::byte each) { return each == std::byte{}; });
    std::printf("early %zu, brought %zu%s\n", early.size, early.brought,
                zeros ? "" : ", not zeros");
  }
  std::puts("main");
  return 0;
}
