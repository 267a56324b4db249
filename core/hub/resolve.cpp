#include "core/hub/resolve.h"

#include <fmt/format.h>

#include "core/hub/local.h"
#include "core/hub/name.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr const char* kWhatModelsAre =
    "a model is a folder, a config.json, a checkpoint file, or a name on the hub like org/name";

}  // namespace

ModelFiles resolve_model(const std::string& name, const ResolveOptions&) {
  if (auto files = find_local_model(name)) return *std::move(files);
  if (!parse_hub_name(name) || is_checkpoint_name(name)) {
    throw Error(ErrorKind::kNotFound, fmt::format("{}: no such file or folder", name),
                kWhatModelsAre);
  }
  throw Error(ErrorKind::kNotFound, fmt::format("{}: not found on this machine", name),
              kWhatModelsAre);
}

}  // namespace haul::core
