#pragma once

// OpenMP's threads, which torch's operators and haul's kernels use, while they have nothing to do:
// they look for work 300,000 times before they sleep. On x86 each look has a long pause, 6 to 9 ms
// on a Xeon in all. A layer that the CPU computes would leave them so, and the threads that help a
// GPU with the next layers without cores.

#include <filesystem>

namespace haul::cli {

#if defined(__x86_64__)
inline constexpr bool kIdleThreadsLookLong = true;
#else
inline constexpr bool kIdleThreadsLookLong = false;
#endif

// Some 0.3 ms there, enough from one product to the next. OpenMP's library is told by
// GOMP_SPINCOUNT.
inline constexpr const char* kFewLooks = "10000";

// Beside a GPU lets those of programs that start from now on sleep sooner, unless the user has said
// when. `devices`: the folder of the system's devices.
void let_idle_threads_sleep(const std::filesystem::path& devices = "/dev");

}  // namespace haul::cli
