#include <algorithm>
#include <array>

#include "core/describe/family.h"

namespace haul::core {

extern const Family kBert;
extern const Family kBloom;
extern const Family kGpt2;
extern const Family kIdefics;
extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kResNet;
extern const Family kT5;

const Family* find_family(std::string_view class_name, std::string_view model_type) {
  static const std::array families = {
      &kBert, &kBloom, &kGpt2, &kIdefics, &kLlama, &kMistral, &kQwen2, &kQwen3, &kResNet, &kT5,
  };
  for (const Family* family : families) {
    const auto& classes = family->classes;
    const bool found = class_name.empty()
                           ? !model_type.empty() && family->model_type == model_type
                           : std::find(classes.begin(), classes.end(), class_name) != classes.end();
    if (found) return family;
  }
  return nullptr;
}

}  // namespace haul::core
