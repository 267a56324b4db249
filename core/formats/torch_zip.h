#pragma once

// Checkpoints that torch.save writes since version 1.6: a zip archive with a pickle of the objects
// and one entry for each storage. Nothing of the pickle is ever run. docs/formats/torch-zip.md
// tells which names the tensors get. Pure; any thread.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/formats/checkpoint.h"

namespace haul::core {

struct TorchZip {
  std::vector<StoredTensor> tensors;  // in the pickle's order, offsets from the archive's start
  std::vector<std::string> notes;     // for the user
};

// Throws Error, which names the tensor but not the file: kCorrupt, or kUnsupported for archives in
// the older formats, of TorchScript, big-endian or compressed, for pickles that ask for code, and
// for tensors that are not dense.
TorchZip read_torch_zip(std::span<const std::byte> archive);

}  // namespace haul::core
