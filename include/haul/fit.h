#pragma once

// Does it fit? A table of bytes against the memory of a device. Pure, any thread. That something
// does not fit is an answer, not an error.

#include <span>
#include <string_view>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/estimate.h"

namespace haul {

struct Gpu {
  std::string_view name;  // "RTX 4090 24GB"
  Bytes memory = 0;       // as sold
  Bytes reserved = 0;     // for the driver, error correction and the process's CUDA context
};

// GPUs that people have, by memory.
std::span<const Gpu> known_gpus();

// The GPU that a user means: "H200", "rtx-4090", "A100 40GB". Case, spaces, dashes and the size may
// be left out. Null when there is none of that name; throws Error(kUsage) with the names when there
// are several.
const Gpu* find_gpu(std::string_view text);

enum class Fit { kFits, kFitsWithOffload, kDoesNotFit };

struct Verdict {
  Fit fit = Fit::kFits;
  Bytes budget = 0;
  Bytes needed = 0;     // with everything on the device
  Bytes free = 0;       // of the budget, when it fits
  Bytes offloaded = 0;  // kept in RAM or on disk, when it fits with offload
  Bytes missing = 0;    // when it does not fit: what is short even with offload
};

// The weights of the largest layer over those of all layers: what one streaming slot must hold.
double largest_layer_share(const Description& description);

// What can be offloaded is whatever belongs to parameters (weights, master weights, gradients,
// optimizer state). The rest must be on the device, and with offload two slots more, each as large
// as the largest layer's share of what can be offloaded: one in use, one arriving.
Verdict judge(std::span<const TableEntry> table, double layer_share, Bytes budget);

}  // namespace haul
