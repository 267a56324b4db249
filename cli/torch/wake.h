#pragma once

// The first of the GPUs is got ready while torch's libraries start, which takes them longer: its
// driver and a context are what loading would wait for next, and then RAM (early_memory.h). A run
// that fails at once waits for it, and what the driver takes of RAM may count to torch's libraries.

namespace haul::cli {

// Before the process ends: the driver does not like to be left in the middle.
void wait_until_awake();

}  // namespace haul::cli
