#include "core/estimate/linear_layers.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace haul::core {

void for_each_parameter(const ModuleSizes& sizes,
                        const std::function<void(const OwnedParameter&)>& visit) {
  for (const ModuleSizes::Node& node : sizes.nodes()) {
    if (node.kind != ModuleSizes::Kind::kParameter) continue;
    visit({*sizes[node.parent].module, *node.segment, *node.shape, node.bits > 0});
  }
}

bool is_linear_weight(const OwnedParameter& parameter) {
  if (parameter.name != "weight" || parameter.shape.size() != 2) return false;
  const std::string_view class_name = parameter.module.class_name;
  if (class_name == "Layer") {
    constexpr std::array<std::string_view, 5> kTables{"emb", "wte", "wpe", "shared", "norm"};
    const std::string_view name = parameter.module.name;
    return std::none_of(kTables.begin(), kTables.end(),
                        [&](std::string_view table) { return name.find(table) != name.npos; });
  }
  return class_name == "Conv1D" || class_name.ends_with("Linear");
}

std::int64_t output_width(const OwnedParameter& parameter) {
  return parameter.module.class_name == "Conv1D" ? parameter.shape[1] : parameter.shape[0];
}

const ModuleSpec* output_head(const Description& description) {
  if (!description.dimensions || description.dimensions->vocabulary == 0) return nullptr;
  const Dimensions& d = *description.dimensions;
  const ModuleSpec* head = nullptr;
  for_each_parameter(compute_module_sizes(description), [&](const OwnedParameter& parameter) {
    if (!is_linear_weight(parameter)) return;
    const std::int64_t width = output_width(parameter);
    if (width == d.vocabulary) {
      head = &parameter.module;
    } else if (width >= d.hidden) {
      head = nullptr;
    }
  });
  return head;
}

bool is_inner_linear_weight(const OwnedParameter& parameter, const ModuleSpec* head) {
  return is_linear_weight(parameter) && &parameter.module != head;
}

}  // namespace haul::core
