#include "core/hub/resolve.h"

#include <fmt/format.h>

#include "core/hub/hub_model.h"
#include "core/hub/local.h"
#include "core/hub/name.h"
#include "haul/error.h"

namespace haul::core {

ModelFiles resolve_model(const std::string& name, const ResolveOptions& options) {
  if (auto files = find_local_model(name)) return *std::move(files);
  const auto parsed = parse_hub_name(name);
  if (!parsed || is_checkpoint_name(name) || name.ends_with(".json")) {
    throw Error(ErrorKind::kNotFound, fmt::format("{}: no such file or folder", printable(name)),
                "a model is a folder, a config.json, a checkpoint file, or a name on the hub like "
                "org/name");
  }
  ModelFiles files =
      HubModel(hub_settings_from_environment(), *parsed, options.revision).resolve(options.need);
  files.name = name;
  return files;
}

}  // namespace haul::core
