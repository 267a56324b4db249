// torch's aarch64 wheel carries copies of these templates that its linker took from files compiled
// for SVE, and a CPU without it stops at them (SIGILL, for one in building an LSTM). An
// executable's own copies come first, so instantiating them here, for every CPU, is enough.

#include <vector>

#include <ATen/core/Tensor.h>

using Tensors = std::vector<at::Tensor>;
template void Tensors::_M_realloc_insert(Tensors::iterator, at::Tensor&);
template void Tensors::_M_realloc_insert(Tensors::iterator, const at::Tensor&);
template void Tensors::_M_realloc_insert(Tensors::iterator, at::Tensor&&);

// Named on the link line, so that every executable takes this file in.
extern "C" const int haul_instantiated_for_every_cpu = 1;
