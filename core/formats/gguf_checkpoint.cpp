#include <cstdlib>

#include <fmt/format.h>

#include "core/formats/checkpoint_builder.h"
#include "core/formats/gguf.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

// Large models come in parts, "name-00001-of-00003.gguf" and so on, each with its place among them.
struct Part {
  std::int64_t number = 0;  // from 0
  std::int64_t count = 1;
};

Part part_of(const GgufHeader& header) {
  const auto number = [&](std::string_view key, std::int64_t missing) {
    const GgufValue* value = header.find(key);
    return value == nullptr ? missing : value->integer().value_or(missing);
  };
  return {number("split.no", 0), number("split.count", 1)};
}

std::string ending(const Part& part) {
  return fmt::format("-{:05}-of-{:05}.gguf", part.number + 1, part.count);
}

Part add_part(CheckpointBuilder& builder, const fs::path& path) {
  const std::uint32_t file = builder.add_file(path);
  GgufHeader header = parse_gguf(builder.file(file).bytes(), path.string());
  for (StoredTensor& tensor : header.tensors) {
    tensor.file = file;
    builder.add(std::move(tensor));
  }
  builder.set_metadata(header.json());
  return part_of(header);
}

}  // namespace

void add_gguf(CheckpointBuilder& builder, const fs::path& path) {
  const Part first = add_part(builder, path);
  if (first.count <= 1) return;
  const std::string name = path.filename().string();
  if (first.number != 0 || !name.ends_with(ending(first))) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: part {} of {} of a model in several files", path.string(),
                            first.number + 1, first.count),
                fmt::format("name the first one, which ends in {}", ending({0, first.count})));
  }
  const std::string stem = name.substr(0, name.size() - ending(first).size());
  for (Part part{1, first.count}; part.number < part.count; ++part.number) {
    const fs::path next = path.parent_path() / (stem + ending(part));
    const Part found = add_part(builder, next);
    if (found.number != part.number || found.count != part.count) {
      throw Error(ErrorKind::kCorrupt, fmt::format("{}: it says that it is part {} of {}",
                                                   next.string(), found.number + 1, found.count));
    }
  }
}

}  // namespace haul::core
