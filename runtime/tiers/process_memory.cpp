#include "runtime/tiers/process_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

#include <ATen/ops/ones.h>

#include "runtime/tiers/offered_memory.h"

namespace haul::runtime {
namespace {

// A line of /proc/self/status, which counts in kB.
Bytes status(std::string_view key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t digits = line.find_first_of("0123456789");
    if (digits == line.npos) break;
    Bytes kilobytes = 0;
    std::from_chars(line.data() + digits, line.data() + line.size(), kilobytes);
    return kilobytes * kKiB;
  }
  return 0;
}

}  // namespace

Bytes resident_memory_now() {
  return status("VmRSS:");
}

Bytes peak_memory() {
  return status("VmHWM:");
}

Bytes libtorch_memory() {
  static const Bytes bytes = [] {
    constexpr std::int64_t kWidth = 64;
    const at::Tensor some = at::ones({kWidth, kWidth});
    some.mm(some);
    const Bytes all = resident_memory_now();
    return all - std::min(all, offered_now());
  }();
  return bytes;
}

}  // namespace haul::runtime
