#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "haul/error.h"
#include "models/families/family.h"

namespace haul::models {

extern const Family kBertFamily;
extern const Family kBloomFamily;
extern const Family kGpt2Family;
extern const Family kLlamaFamily;
extern const Family kT5Family;

namespace {

const Family* const kFamilies[] = {&kBertFamily, &kBloomFamily, &kGpt2Family, &kLlamaFamily,
                                   &kT5Family};

}  // namespace

at::Tensor Model::encode(const Inputs&) {
  throw Error(ErrorKind::kInternal, "a model without an encoder was asked to encode");
}

std::shared_ptr<Model> make_model(const core::ConfigReader& config,
                                  const Description& description) {
  for (const Family* family : kFamilies) {
    const auto& names = family->architectures;
    if (std::find(names.begin(), names.end(), description.architecture) != names.end()) {
      return family->make(config, description);
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
