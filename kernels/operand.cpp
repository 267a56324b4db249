#include "kernels/operand.h"

#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"

namespace haul::kernels {

at::Tensor Operand::value() const {
  if (!norm) return x;
  return norm->bias.defined() ? layer_norm(x, norm->weight, norm->bias, norm->epsilon)
                              : rms_norm(x, norm->weight, norm->epsilon);
}

}  // namespace haul::kernels
