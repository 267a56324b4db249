#pragma once

// The memory of the whole process, as the system counts it: what is resident, code included. Any
// thread. Zero where the system does not tell.

#include "haul/bytes.h"

namespace haul::runtime {

// At present.
Bytes resident_memory_now();
// The most since the process began.
Bytes peak_memory();
// What is not the model's: measured once, at the first call, after libtorch has computed something.
Bytes libtorch_memory();

}  // namespace haul::runtime
