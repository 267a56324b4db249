#include "core/hub/selection.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::array<std::string_view, 3> kPickles{".bin", ".pt", ".pth"};
constexpr std::array<std::string_view, 7> kForeign{".h5",        ".msgpack", ".ot",     ".onnx",
                                                   ".onnx_data", ".tflite",  ".mlmodel"};
constexpr std::array<std::string_view, 6> kTexts{".json",  ".txt",      ".model",
                                                 ".jinja", ".tiktoken", ".vocab"};
// Pickles that hold no weights.
constexpr std::array<std::string_view, 5> kNotWeights{
    "training_args.bin", "optimizer.bin", "scheduler.bin", "optimizer.pt", "scheduler.pt"};

template <std::size_t N>
bool ends_in(std::string_view name, const std::array<std::string_view, N>& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

std::string_view base_name(std::string_view name) {
  return name.substr(name.rfind('/') + 1);
}

bool is_pickle(std::string_view name) {
  const std::string_view base = base_name(name);
  const bool other = std::find(kNotWeights.begin(), kNotWeights.end(), base) != kNotWeights.end();
  return (ends_in(name, kPickles) && !other) || name.ends_with(".bin.index.json");
}

bool is_safetensors(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

bool is_consolidated(std::string_view name) {
  return is_safetensors(name) && base_name(name).starts_with("consolidated");
}

// What a sentence-transformers model keeps in a folder of its own: "1_Pooling/config.json".
bool is_pooling(std::string_view name) {
  return name.ends_with("_Pooling/config.json") && name.find('/') == name.rfind('/');
}

bool matches_any(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string pattern) {
    if (pattern.ends_with("/")) pattern += '*';
    return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

// Which formats a list of files has.
struct Formats {
  bool safetensors = false;
  bool model_safetensors = false;
  bool pickles = false;

  explicit Formats(const std::vector<HubFile>& files) {
    for (const HubFile& file : files) {
      const bool safe = file.name.ends_with(".safetensors");
      safetensors = safetensors || safe;
      model_safetensors = model_safetensors || (safe && base_name(file.name).starts_with("model"));
      pickles = pickles || is_pickle(file.name);
    }
  }

  bool is_second_copy(std::string_view name) const {
    if (is_consolidated(name)) return model_safetensors;
    if (is_pickle(name)) return safetensors;
    return ends_in(name, kForeign) && (safetensors || pickles);
  }
};

std::vector<HubFile> top_folder(const std::vector<HubFile>& files) {
  std::vector<HubFile> top;
  std::copy_if(files.begin(), files.end(), std::back_inserter(top),
               [](const HubFile& file) { return file.name.find('/') == file.name.npos; });
  return top;
}

}  // namespace

Selection select_for_download(const std::vector<HubFile>& files,
                              const std::vector<std::string>& include,
                              const std::vector<std::string>& exclude) {
  const Formats formats(files);
  Selection selection;
  for (const HubFile& file : files) {
    if (matches_any(file.name, exclude)) continue;
    if (!include.empty()) {
      if (matches_any(file.name, include)) selection.files.push_back(file);
    } else if (formats.is_second_copy(file.name)) {
      selection.skipped.push_back(file);
    } else {
      selection.files.push_back(file);
    }
  }
  return selection;
}

std::vector<HubFile> select_for_run(const std::vector<HubFile>& files,
                                    const std::string& repository) {
  const std::vector<HubFile> top = top_folder(files);
  const Formats formats(top);
  const bool other_weights = formats.safetensors || formats.pickles;
  std::vector<HubFile> selected;
  std::string ggufs;
  std::size_t gguf_count = 0;
  for (const HubFile& file : top) {
    const bool gguf = file.name.ends_with(".gguf");
    if (gguf) {
      ggufs += fmt::format("{}{}", gguf_count++ > 0 ? ", " : "", file.name);
    }
    const bool weights = is_safetensors(file.name) || is_pickle(file.name);
    if ((weights || ends_in(file.name, kTexts)) ? !formats.is_second_copy(file.name)
                                                : gguf && !other_weights) {
      selected.push_back(file);
    }
  }
  for (const HubFile& file : files) {
    if (is_pooling(file.name)) selected.push_back(file);
  }
  if (!other_weights && gguf_count > 1) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: holds {} GGUF files: {}", repository, gguf_count, ggufs),
                fmt::format("fetch one with 'haul download {} --include FILE' and name its path",
                            repository));
  }
  return selected;
}

std::vector<HubFile> top_safetensors(const std::vector<HubFile>& files) {
  const std::vector<HubFile> top = top_folder(files);
  const Formats formats(top);
  std::vector<HubFile> selected;
  for (const HubFile& file : top) {
    if (file.name == "model.safetensors") return {file};
    if (file.name.ends_with(".safetensors") && !formats.is_second_copy(file.name)) {
      selected.push_back(file);
    }
  }
  return selected;
}

}  // namespace haul::core
