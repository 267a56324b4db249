#pragma once

// The instruction sets that Highway compiles kernels for. Before hwy/foreach_target.h.

// Vectors of SVE have no size that a compiler knows, and so no arrays; memory is the limit with
// shorter ones too.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
