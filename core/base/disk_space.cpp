#include "core/base/disk_space.h"

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {

void require_disk_space(const std::filesystem::path& folder, Bytes needed) {
  std::error_code code;
  const std::filesystem::space_info space = std::filesystem::space(folder, code);
  if (code || space.capacity == 0 || space.available >= needed) return;
  throw Error(ErrorKind::kResource,
              fmt::format("{}: {} are needed and {} are free", folder.string(),
                          format_bytes(needed), format_bytes(space.available)),
              "free some space on this disk, or choose another folder");
}

}  // namespace haul::core
