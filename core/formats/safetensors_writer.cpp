#include "core/formats/safetensors_writer.h"

#include <unordered_set>

#include <fmt/format.h>

#include "core/formats/tensor_size.h"
#include "haul/error.h"

namespace haul::core {
namespace {

// Of the data in the file: a disk's block, so that weights can be read past the page cache straight
// to where they are used.
constexpr Bytes kAlignment = 512;

[[noreturn]] void refuse(std::string_view tensor, std::string_view why) {
  throw Error(ErrorKind::kUnsupported,
              fmt::format("tensor '{}' cannot be written to safetensors: {}", tensor, why));
}

std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    refuse(text, "its name or metadata is not UTF-8");
  }
}

std::string little_endian(Bytes value) {
  std::string bytes;
  for (Bytes i = 0; i < kSafetensorsPrefix; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

}  // namespace

Bytes safetensors_size(const HeaderTensor& tensor) {
  const auto size = checked_size(tensor.dtype, tensor.shape);
  if (!size) refuse(tensor.name, "its shape fills no whole bytes");
  return *size;
}

Bytes safetensors_size(const std::vector<HeaderTensor>& tensors) {
  Bytes total = 0;
  for (const HeaderTensor& tensor : tensors) {
    if (__builtin_add_overflow(total, safetensors_size(tensor), &total)) {
      refuse(tensor.name, "all together are larger than 2^64 bytes");
    }
  }
  return total;
}

std::string safetensors_prefix(const std::vector<HeaderTensor>& tensors,
                               const SafetensorsMetadata& metadata) {
  std::string json = "{";
  const auto separate = [&json] {
    if (json.back() != '{') json += ',';
  };
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      separate();
      json += quoted(key) + ':' + quoted(value);
    }
    json += '}';
  }
  std::unordered_set<std::string_view> seen;
  Bytes offset = 0;
  for (const HeaderTensor& tensor : tensors) {
    if (tensor.name == "__metadata__") refuse(tensor.name, "the name is reserved");
    if (!seen.insert(tensor.name).second) refuse(tensor.name, "the name is given twice");
    const Bytes end = offset + safetensors_size(tensor);
    separate();
    json +=
        fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", quoted(tensor.name),
                    name(tensor.dtype), Json(tensor.shape).dump(), offset, end);
    offset = end;
  }
  json += '}';
  const Bytes size = kSafetensorsPrefix + json.size();
  json.resize((size + kAlignment - 1) / kAlignment * kAlignment - kSafetensorsPrefix, ' ');
  if (json.size() > kSafetensorsMaxHeader) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("the header of {} tensors would have {} bytes, and 100,000,000 are "
                            "allowed",
                            tensors.size(), json.size()),
                "write smaller shards");
  }
  return little_endian(json.size()) + json;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<HeaderTensor>& tensors,
                                     const SafetensorsMetadata& metadata)
    : file_(path), path_(path.string()), due_(safetensors_size(tensors)) {
  file_.write(safetensors_prefix(tensors, metadata));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > due_) {
    throw Error(ErrorKind::kInternal, fmt::format("{}: {} bytes more than its header announces",
                                                  path_, bytes.size() - due_));
  }
  file_.write(bytes);
  due_ -= bytes.size();
}

void SafetensorsWriter::commit() {
  if (due_ != 0) {
    throw Error(ErrorKind::kInternal,
                fmt::format("{}: {} bytes less than its header announces", path_, due_));
  }
  file_.commit();
}

}  // namespace haul::core
