#pragma once

// The names of the tensors in a torch checkpoint: the way to each through dicts, lists and tuples,
// with dots between. Pure.

#include <cstddef>

#include "core/formats/pickle.h"
#include "core/formats/torch_tensor.h"
#include "core/formats/torch_zip.h"

namespace haul::core {

// Every tensor of the pickle, of `pickle_size` bytes, with its name. Where the root is a dict that
// holds the model's weights under a usual key ("state_dict", …), names begin inside of it, and a
// note tells what is left out. Throws Error, naming the tensor, for those that cannot be read, for
// keys that make no name, for two tensors of one name, for values that contain themselves, and for
// sharing that would make the names much longer than the pickle.
TorchZip name_torch_tensors(const Pickle& pickle, const TorchTensors& tensors,
                            std::size_t pickle_size);

}  // namespace haul::core
