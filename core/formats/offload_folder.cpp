#include "core/formats/offload_folder.h"

#include <map>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/formats/safetensors.h"
#include "core/formats/tensor_size.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::size_t kMaxFileName = 255;
constexpr std::string_view kSuffix = ".dat";

[[noreturn]] void refuse(std::string_view source, std::string_view tensor, const std::string& why) {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': {}", source, tensor, why));
}

bool is_file_name(std::string_view tensor) {
  return !tensor.empty() && tensor.size() + kSuffix.size() <= kMaxFileName &&
         tensor.find('/') == tensor.npos && tensor.find('\0') == tensor.npos;
}

std::optional<Dtype> read_dtype(object entry, std::string_view tensor, std::string_view source) {
  element value;
  if (entry["dtype"].get(value)) return std::nullopt;
  std::string_view text;
  if (value.get(text)) refuse(source, tensor, "its dtype is not a string");
  const auto dtype = dtype_from_torch_name(text);
  if (!dtype) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: tensor '{}': unknown dtype '{}'", source, tensor, text));
  }
  return dtype;
}

Shape read_shape(object entry, std::string_view tensor, std::string_view source) {
  simdjson::dom::array array;
  if (entry["shape"].get(array)) refuse(source, tensor, "it has no shape");
  Shape shape;
  for (const element item : array) {
    std::int64_t size = 0;
    if (item.get(size) || size < 0) refuse(source, tensor, "its shape is not a list of sizes");
    shape.push_back(size);
  }
  return shape;
}

OffloadEntry read_entry(std::string_view tensor, element value, std::string_view source) {
  object fields;
  if (value.get(fields)) refuse(source, tensor, "its entry is not a JSON object");
  OffloadEntry entry;
  entry.name = tensor;
  entry.dtype = read_dtype(fields, tensor, source);
  element file;
  if (!fields["safetensors_file"].get(file) && !file.is_null()) {
    std::string_view text;
    if (file.get(text) || text.empty() || text.find('\0') != text.npos) {
      refuse(source, tensor, "its safetensors_file is not a path");
    }
    entry.safetensors_file = text;
    entry.weight_name = tensor;
    element weight;
    if (!fields["weight_name"].get(weight)) {
      if (weight.get(text)) refuse(source, tensor, "its weight_name is not a string");
      entry.weight_name = text;
    }
    return entry;
  }
  if (!entry.dtype) refuse(source, tensor, "it has no dtype");
  if (!is_file_name(tensor)) refuse(source, tensor, "its name cannot be a file's name");
  entry.shape = read_shape(fields, tensor, source);
  return entry;
}

void add_dat(CheckpointBuilder& builder, const fs::path& path, OffloadEntry entry) {
  StoredTensor tensor;
  tensor.file = builder.add_file(path);
  tensor.name = std::move(entry.name);
  tensor.dtype = *entry.dtype;
  tensor.shape = std::move(entry.shape);
  tensor.size = builder.file(tensor.file).bytes().size();
  // No map can be empty in NumPy, so a tensor without elements has one byte.
  if (tensor.size == 1 && checked_size(tensor.dtype, tensor.shape) == Bytes{0}) tensor.size = 0;
  builder.add(std::move(tensor));
}

// The safetensors files that entries point at, each mapped and read once.
class References {
 public:
  References(CheckpointBuilder& builder, const fs::path& folder)
      : builder_(builder), folder_(folder) {}

  void add(const OffloadEntry& entry) {
    const File& file = open(entry.safetensors_file);
    const auto found = file.tensors.find(entry.weight_name);
    if (found == file.tensors.end()) {
      refuse(entry.safetensors_file, entry.weight_name,
             fmt::format("the offload index names it for '{}', and it is not there", entry.name));
    }
    StoredTensor tensor;
    tensor.name = entry.name;
    tensor.dtype = found->second.dtype;
    tensor.shape = found->second.shape;
    tensor.file = file.index;
    tensor.offset = found->second.offset;
    tensor.size = found->second.size;
    if (entry.dtype && *entry.dtype != tensor.dtype) ++recast_;
    builder_.add(std::move(tensor));
  }

  // How many are wanted in another dtype than they are stored in.
  std::size_t recast() const { return recast_; }

 private:
  struct File {
    std::uint32_t index = 0;
    std::unordered_map<std::string, SafetensorsEntry> tensors;
  };

  const File& open(const std::string& name) {
    const auto known = files_.find(name);
    if (known != files_.end()) return known->second;
    fs::path path = name;
    std::error_code ignored;
    if (path.is_relative() && !fs::exists(path, ignored)) path = folder_ / path;
    File file;
    file.index = builder_.add_file(path);
    SafetensorsHeader header =
        read_safetensors_header(builder_.file(file.index).bytes(), path.string());
    for (SafetensorsEntry& tensor : header.tensors) {
      std::string key = tensor.name;
      file.tensors.emplace(std::move(key), std::move(tensor));
    }
    return files_.emplace(name, std::move(file)).first->second;
  }

  CheckpointBuilder& builder_;
  const fs::path& folder_;
  std::map<std::string, File> files_;
  std::size_t recast_ = 0;
};

}  // namespace

std::vector<OffloadEntry> read_offload_index(element root, std::string_view source) {
  object map;
  if (root.get(map)) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: an offload index is a JSON object", source));
  }
  std::vector<OffloadEntry> entries;
  for (const auto field : map) entries.push_back(read_entry(field.key, field.value, source));
  return entries;
}

void add_offload_folder(CheckpointBuilder& builder, const fs::path& index_path, element root) {
  const fs::path folder = index_path.parent_path();
  std::vector<OffloadEntry> entries = read_offload_index(root, index_path.string());
  std::vector<std::string> missing;
  for (const OffloadEntry& entry : entries) {
    if (!entry.safetensors_file.empty()) continue;
    std::string file = entry.name + std::string(kSuffix);
    std::error_code ignored;
    if (!fs::exists(folder / file, ignored)) missing.push_back(std::move(file));
  }
  if (!missing.empty()) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{}: {} of its files are missing: {}", index_path.string(),
                            missing.size(), fmt::join(missing, ", ")));
  }
  References references(builder, folder);
  for (OffloadEntry& entry : entries) {
    if (entry.safetensors_file.empty()) {
      const fs::path file = folder / (entry.name + std::string(kSuffix));
      add_dat(builder, file, std::move(entry));
    } else {
      references.add(entry);
    }
  }
  if (references.recast() > 0) {
    builder.note(
        fmt::format("{}: {} tensors are wanted in another dtype than they are stored in; "
                    "they are given as stored",
                    index_path.string(), references.recast()));
  }
}

OffloadFolderWriter::OffloadFolderWriter(fs::path folder) : folder_(std::move(folder)) {
  std::error_code code;
  fs::create_directories(folder_, code);
  if (!code) fs::remove(folder_ / "index.json", code);
  if (code) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: cannot write: {}", folder_.string(), code.message()));
  }
}

void OffloadFolderWriter::add(const std::string& name, Dtype dtype, const Shape& shape,
                              std::span<const std::byte> bytes) {
  if (!is_file_name(name) || torch_name(dtype).empty()) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: tensor '{}' of {} has no place in an offload folder",
                            folder_.string(), name, haul::name(dtype)));
  }
  if (checked_size(dtype, shape) != bytes.size()) {
    throw Error(ErrorKind::kInternal, fmt::format("{}: tensor '{}': {} bytes do not make its shape",
                                                  folder_.string(), name, bytes.size()));
  }
  record(name, Json{{"dtype", torch_name(dtype)}, {"shape", shape}});
  AtomicFile file(folder_ / (name + std::string(kSuffix)));
  file.write(bytes);
  if (bytes.empty()) file.write(std::string_view("\0", 1));
  file.commit();
}

void OffloadFolderWriter::add_reference(const std::string& name, const fs::path& safetensors_file,
                                        const std::string& weight_name, Dtype dtype) {
  record(name, Json{{"safetensors_file", fs::absolute(safetensors_file).string()},
                    {"weight_name", weight_name},
                    {"dtype", torch_name(dtype)}});
}

void OffloadFolderWriter::record(const std::string& name, Json entry) {
  if (!seen_.insert(name).second) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: tensor '{}' is written twice", folder_.string(), name));
  }
  entries_.emplace_back(name, std::move(entry));
}

void OffloadFolderWriter::commit() {
  Json index = Json::object();
  auto& list = index.get_ref<Json::object_t&>();
  for (auto& [name, entry] : entries_) list.emplace_back(name, std::move(entry));
  write_file_atomically(folder_ / "index.json", index.dump(2));
}

}  // namespace haul::core
