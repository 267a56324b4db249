#pragma once

// Ctrl-C ends the answer, not the program; a second one the program.

#include <atomic>

namespace haul::cli {

// Becomes true at the first Ctrl-C after catch_interrupt().
const std::atomic<bool>& interrupted();

// From now on, and again: forgets an earlier one.
void catch_interrupt();

// Until there is a line on a terminal to be read by the thread that called catch_interrupt(). False
// when Ctrl-C came instead, be it before the wait or in it.
bool wait_for_line();

// If interrupted, ends the program as a shell expects it of one that was: by the signal itself.
// Only when all is said and cleaned up.
void end_if_interrupted();

}  // namespace haul::cli
