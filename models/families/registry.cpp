#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "haul/error.h"
#include "models/blocks/stock.h"
#include "models/families/family.h"

namespace haul::models {

extern const Family kBertFamily;
extern const Family kBloomFamily;
extern const Family kGpt2Family;
extern const Family kLlamaFamily;
extern const Family kT5Family;

namespace {

// Gives the module the children that hold no tensors (dropouts, activations), so that device maps
// may name them, and makes sure of the tensors.
void complete(torch::nn::Module* module, const ModuleSpec& spec) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kInternal,
                fmt::format("a {} is built otherwise than described: {}", spec.class_name, what));
  };
  const auto check = [&](const auto& specs, const auto& own, const char* kind) {
    if (specs.size() != own.size()) fail(fmt::format("{} {}", own.size(), kind));
    for (const auto& item : specs) {
      const at::Tensor* const tensor = own.find(item.name);
      if (tensor == nullptr || tensor->sizes().vec() != item.shape) fail(item.name);
    }
  };
  check(spec.parameters, module->named_parameters(false), "parameters");
  check(spec.buffers, module->named_buffers(false), "buffers");
  const auto children = module->named_children();
  for (const auto& item : children) {
    if (!has_child(spec, item.key())) fail(item.key());
  }
  for (const ModuleSpec& child : spec.children) {
    if (const auto* const found = children.find(child.name)) {
      complete(found->get(), child);
    } else {
      const auto added = module->register_module(child.name, torch::nn::Identity());
      complete(added.get(), child);
    }
  }
}

const Family* const kFamilies[] = {&kBertFamily, &kBloomFamily, &kGpt2Family, &kLlamaFamily,
                                   &kT5Family};

}  // namespace

std::shared_ptr<Model> make_model(const core::ConfigReader& config,
                                  const Description& description) {
  for (const Family* family : kFamilies) {
    const auto& names = family->architectures;
    if (std::find(names.begin(), names.end(), description.architecture) != names.end()) {
      std::shared_ptr<Model> model = family->make(config, description);
      complete(model.get(), description.root);
      return model;
    }
  }
  throw Error(ErrorKind::kUnsupported,
              fmt::format("haul cannot run the architecture '{}'", description.architecture),
              fmt::format("known are {}; 'haul estimate' and 'haul plan' work for every model",
                          fmt::join(known_architectures(), ", ")));
}

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> result;
  for (const Family* family : kFamilies) {
    result.insert(result.end(), family->architectures.begin(), family->architectures.end());
  }
  return result;
}

}  // namespace haul::models
