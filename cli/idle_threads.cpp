#include "cli/idle_threads.h"

#include <cstdlib>
#include <system_error>

namespace haul::cli {

void let_idle_threads_sleep(const std::filesystem::path& devices) {
  std::error_code none;
  const bool has_gpu = std::filesystem::exists(devices / "nvidiactl", none) ||
                       std::filesystem::exists(devices / "dxg", none);
  if (!kIdleThreadsLookLong || !has_gpu || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", kFewLooks, 0);
}

}  // namespace haul::cli
