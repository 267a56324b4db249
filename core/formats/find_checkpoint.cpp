#include "core/formats/find_checkpoint.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

constexpr std::string_view kSafetensors = "model.safetensors";
constexpr std::string_view kPickle = "pytorch_model.bin";
constexpr std::string_view kOffloadIndex = "index.json";

Names sorted_names(const fs::path& folder) {
  Names names;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    names.push_back(it->path().filename().string());
  }
  if (code) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: cannot list: {}", folder.string(), code.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Names ending_in(const Names& names, std::string_view suffix) {
  Names result;
  std::copy_if(names.begin(), names.end(), std::back_inserter(result),
               [suffix](const std::string& name) { return name.ends_with(suffix); });
  return result;
}

// Whether a GGUF file is one of several of a model, and not the first: "m-00002-of-00003.gguf".
bool is_later_part(const std::string& name) {
  constexpr std::string_view kFirst = "-00001-of-00001.gguf";
  if (name.size() < kFirst.size()) return false;
  const std::string_view ending = std::string_view(name).substr(name.size() - kFirst.size());
  for (std::size_t i = 0; i < ending.size(); ++i) {
    const bool digit = ending[i] >= '0' && ending[i] <= '9';
    if (kFirst[i] >= '0' && kFirst[i] <= '9' ? !digit : ending[i] != kFirst[i]) return false;
  }
  return ending.substr(1, 5) != kFirst.substr(1, 5);
}

bool has(const Names& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

[[noreturn]] void refuse_several(const fs::path& folder, const Names& names,
                                 std::string_view what) {
  throw Error(ErrorKind::kUsage,
              fmt::format("{}: several {}: {}", folder.string(), what, fmt::join(names, ", ")),
              "name one of these files instead of the folder");
}

std::string passed_over(const fs::path& folder, const Names& taken, const Names& left) {
  return fmt::format("{} has both {} and {}; the safetensors are used", folder.string(),
                     fmt::join(taken, ", "), fmt::join(left, ", "));
}

CheckpointPlace find_in_folder(const fs::path& folder) {
  const Names names = sorted_names(folder);
  const Names indexes = ending_in(names, ".index.json");
  const Names safe = ending_in(names, ".safetensors.index.json");
  Names pickled;
  std::set_difference(indexes.begin(), indexes.end(), safe.begin(), safe.end(),
                      std::back_inserter(pickled));
  if (has(names, kPickle)) pickled.insert(pickled.begin(), std::string(kPickle));

  CheckpointPlace place;
  if (has(names, kSafetensors)) {
    place.path = folder / kSafetensors;
    if (has(names, kPickle)) {
      place.notes.push_back(passed_over(folder, {std::string(kSafetensors)}, pickled));
    }
  } else if (safe.size() == 1) {
    place.path = folder / safe.front();
    if (!pickled.empty()) place.notes.push_back(passed_over(folder, safe, pickled));
  } else if (has(names, kPickle)) {
    place.path = folder / kPickle;
  } else if (indexes.size() > 1) {
    refuse_several(folder, indexes, "shard indexes");
  } else if (indexes.size() == 1) {
    place.path = folder / indexes.front();
  } else if (has(names, kOffloadIndex)) {
    place.path = folder / kOffloadIndex;
  } else {
    Names ggufs = ending_in(names, ".gguf");
    std::erase_if(ggufs, is_later_part);
    if (ggufs.size() > 1) refuse_several(folder, ggufs, "GGUF files");
    if (ggufs.empty()) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("{}: no checkpoint: neither {}, {}, a file that ends in .index.json, "
                              "an offload folder's {} nor a .gguf file",
                              folder.string(), kSafetensors, kPickle, kOffloadIndex),
                  "if the weights have another name, name the file itself");
    }
    place.path = folder / ggufs.front();
  }
  return place;
}

}  // namespace

CheckpointPlace find_checkpoint(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (fs::is_directory(status)) return find_in_folder(path);
  if (!fs::exists(status)) {
    throw Error(ErrorKind::kNotFound, fmt::format("{}: no such file or folder", path.string()));
  }
  return {path, {}};
}

}  // namespace haul::core
