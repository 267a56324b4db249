#include "models/blocks/spread.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "haul/error.h"

namespace haul::models {

at::Tensor PartOfSum::whole(const at::Tensor& product, const at::Tensor& bias) const {
  const at::Tensor sum = sum_(product);
  return bias.defined() ? sum + bias : sum;
}

void spread_over_processes(torch::nn::Module& model, const std::vector<std::string>& summed,
                           const Sum& sum, std::int64_t first_head, std::int64_t heads) {
  const auto modules = model.named_modules();
  for (const auto& item : modules) {
    if (auto* const numbered = dynamic_cast<NumberedHeads*>(item.value().get())) {
      numbered->take_heads(first_head, heads);
    }
  }
  for (const std::string& name : summed) {
    const auto* const module = modules.find(name);
    auto* const part = module == nullptr ? nullptr : dynamic_cast<PartOfSum*>(module->get());
    if (part == nullptr) {
      throw Error(ErrorKind::kInternal, fmt::format("'{}' cannot have a part of its inputs", name));
    }
    part->spread(sum);
  }
}

}  // namespace haul::models
