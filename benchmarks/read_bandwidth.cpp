// GB/s that all cores together read from memory: the most that decoding on the CPU can get.

#include <cstdio>

#include "runtime/measure/machine.h"

int main() {
  std::printf("%.2f\n", haul::runtime::read_bandwidth(c10::kCPU) / 1e9);
  return 0;
}
