#include "models/families/model.h"

#include "haul/error.h"

namespace haul::models {

Inputs Inputs::to(at::Device device) const {
  Inputs result = *this;
  for (at::Tensor* tensor : {&result.ids, &result.positions, &result.attended, &result.types,
                             &result.encoded, &result.encoded_attended}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return result;
}

at::Tensor Model::forward_part(const Inputs& /*inputs*/, const Layers& /*part*/,
                               const at::Tensor& /*x*/) {
  throw Error(ErrorKind::kInternal, "a pass of this model cannot be cut");
}

at::Tensor Model::encode(const Inputs&) {
  throw Error(ErrorKind::kInternal, "a model without an encoder was asked to encode");
}

}  // namespace haul::models
