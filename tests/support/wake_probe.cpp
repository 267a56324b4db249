// A program that wakes the GPU as haul-torch does.

#include <cstdio>

#include "cli/torch/wake.h"

int main() {
  haul::cli::wait_until_awake();
  std::puts("main");
  return 0;
}
