// torch's aarch64 wheel exports a copy of this template that its linker took from a file compiled
// for SVE, and a CPU without it stops there (SIGILL, in building an LSTM for one). An executable's
// own copy comes first, so instantiating it here, for every CPU, is enough.

#include <vector>

#include <ATen/core/Tensor.h>

using Tensors = std::vector<at::Tensor>;
template void Tensors::_M_realloc_insert(Tensors::iterator, at::Tensor&);

// Named on the link line, so that every executable takes this file in.
extern "C" const int haul_instantiated_for_every_cpu = 1;
