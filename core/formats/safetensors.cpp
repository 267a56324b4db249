#include "core/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/big_json.h"
#include "core/formats/checkpoint_builder.h"
#include "core/formats/tensor_size.h"
#include "haul/error.h"

namespace haul::core {
namespace {

using simdjson::dom::element;

[[noreturn]] void refuse(std::string_view source, const std::string& why, std::string hint = {}) {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", source, why), std::move(hint));
}

// Reads one header; holds what every message names.
class HeaderReader {
 public:
  HeaderReader(std::string_view source, Bytes data_begin, Bytes file_size)
      : source_(source), data_begin_(data_begin), data_size_(file_size - data_begin) {}

  SafetensorsHeader read(element root) {
    simdjson::dom::object object;
    if (root.get(object)) refuse(source_, "its header is not a JSON object");
    SafetensorsHeader header;
    for (const auto field : object) {
      if (field.key == "__metadata__") {
        read_metadata(field.value, &header.metadata);
      } else {
        header.tensors.push_back(read_tensor(field.key, field.value));
      }
    }
    check_layout(&header.tensors);
    return header;
  }

 private:
  [[noreturn]] void refuse_tensor(std::string_view tensor, const std::string& why) const {
    refuse(source_, fmt::format("tensor '{}': {}", tensor, why));
  }

  void read_metadata(element value, SafetensorsMetadata* out) const {
    if (value.is_null()) return;
    simdjson::dom::object object;
    if (value.get(object)) refuse(source_, "__metadata__ is not a JSON object");
    for (const auto field : object) {
      std::string_view text;
      if (field.value.get(text)) {
        refuse(source_, fmt::format("__metadata__ '{}' is not a string", field.key));
      }
      out->emplace_back(field.key, text);
    }
  }

  SafetensorsEntry read_tensor(std::string_view tensor, element value) const {
    simdjson::dom::object object;
    if (value.get(object)) refuse_tensor(tensor, "its entry is not a JSON object");
    SafetensorsEntry entry;
    entry.name = tensor;
    entry.dtype = read_dtype(tensor, object);
    entry.shape = read_shape(tensor, object);
    std::tie(entry.offset, entry.size) = read_offsets(tensor, object);

    const auto needed = checked_size(entry.dtype, entry.shape);
    if (!needed) {
      refuse_tensor(tensor, fmt::format("the shape [{}] of {} is no whole number of bytes below "
                                        "2^64",
                                        fmt::join(entry.shape, ", "), name(entry.dtype)));
    }
    if (*needed != entry.size) {
      refuse_tensor(tensor, fmt::format("the shape [{}] of {} needs {} bytes, and its data_offsets "
                                        "give {}",
                                        fmt::join(entry.shape, ", "), name(entry.dtype), *needed,
                                        entry.size));
    }
    return entry;
  }

  Dtype read_dtype(std::string_view tensor, simdjson::dom::object object) const {
    std::string_view text;
    if (object["dtype"].get(text)) refuse_tensor(tensor, "it has no dtype");
    const auto dtype = dtype_from_name(text);
    if (!dtype) {
      throw Error(ErrorKind::kUnsupported,
                  fmt::format("{}: tensor '{}': unknown dtype '{}'", source_, tensor, text));
    }
    return *dtype;
  }

  Shape read_shape(std::string_view tensor, simdjson::dom::object object) const {
    simdjson::dom::array array;
    if (object["shape"].get(array)) refuse_tensor(tensor, "it has no shape");
    Shape shape;
    for (const element item : array) {
      std::int64_t size = 0;
      if (item.get(size) || size < 0) {
        refuse_tensor(tensor, fmt::format("dimension {} of its shape is not a size below 2^63",
                                          shape.size()));
      }
      shape.push_back(size);
    }
    return shape;
  }

  // Offset in the file and size.
  std::pair<Bytes, Bytes> read_offsets(std::string_view tensor,
                                       simdjson::dom::object object) const {
    simdjson::dom::array array;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    if (object["data_offsets"].get(array) || array.size() != 2 || array.at(0).get(begin) ||
        array.at(1).get(end)) {
      refuse_tensor(tensor, "its data_offsets are not two numbers");
    }
    if (begin > end) {
      refuse_tensor(tensor, fmt::format("its data_offsets [{}, {}] run backwards", begin, end));
    }
    if (end > data_size_) {
      refuse(source_,
             fmt::format("tensor '{}': its data_offsets [{}, {}] reach beyond the file, which has "
                         "{} bytes of data",
                         tensor, begin, end, data_size_),
             "the file may have been cut short: fetch it again");
    }
    return {data_begin_ + begin, end - begin};
  }

  // Sorts by place and checks that the tensors cover the data, each byte once.
  void check_layout(std::vector<SafetensorsEntry>* tensors) const {
    std::stable_sort(tensors->begin(), tensors->end(),
                     [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                       return std::tie(a.offset, a.size) < std::tie(b.offset, b.size);
                     });
    Bytes covered = data_begin_;
    std::string_view previous;
    for (const SafetensorsEntry& tensor : *tensors) {
      if (tensor.offset > covered) {
        refuse_tensor(tensor.name, fmt::format("{} bytes before it belong to no tensor",
                                               tensor.offset - covered));
      }
      if (tensor.offset < covered) {
        refuse_tensor(tensor.name, fmt::format("its bytes overlap those of '{}'", previous));
      }
      covered += tensor.size;
      previous = tensor.name;
    }
    const Bytes end = data_begin_ + data_size_;
    if (covered != end) {
      refuse(source_,
             fmt::format("the last {} bytes of the file belong to no tensor", end - covered));
    }
  }

  std::string_view source_;
  Bytes data_begin_;
  Bytes data_size_;
};

}  // namespace

Bytes safetensors_header_size(std::span<const std::byte> prefix, Bytes file_size,
                              std::string_view source) {
  if (prefix.size() < kSafetensorsPrefix || file_size < kSafetensorsPrefix) {
    refuse(source, fmt::format("{} bytes are too few for a safetensors file", file_size));
  }
  Bytes size = 0;
  for (std::size_t i = kSafetensorsPrefix; i-- > 0;) {
    size = size << 8 | std::to_integer<Bytes>(prefix[i]);
  }
  if (size > kSafetensorsMaxHeader) {
    refuse(source, fmt::format("its header claims {} bytes, and 100,000,000 are allowed", size),
           "this may not be a safetensors file");
  }
  if (size > file_size - kSafetensorsPrefix) {
    refuse(source,
           fmt::format("its header claims {} bytes, and {} follow", size,
                       file_size - kSafetensorsPrefix),
           "the file may have been cut short: fetch it again");
  }
  return size;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, Bytes file_size,
                                           std::string_view source) {
  if (!json.starts_with('{')) refuse(source, "its header does not start with '{'");
  const BigJson document(json, source);
  return HeaderReader(source, kSafetensorsPrefix + json.size(), file_size).read(document.root());
}

SafetensorsHeader read_safetensors_header(std::span<const std::byte> file,
                                          std::string_view source) {
  const Bytes size = safetensors_header_size(file, file.size(), source);
  const auto json = file.subspan(kSafetensorsPrefix, size);
  return parse_safetensors_header({reinterpret_cast<const char*>(json.data()), json.size()},
                                  file.size(), source);
}

void add_safetensors(CheckpointBuilder& builder, const std::filesystem::path& path) {
  const std::uint32_t index = builder.add_file(path);
  SafetensorsHeader header = read_safetensors_header(builder.file(index).bytes(), path.string());
  for (SafetensorsEntry& entry : header.tensors) {
    StoredTensor tensor;
    tensor.name = std::move(entry.name);
    tensor.dtype = entry.dtype;
    tensor.shape = std::move(entry.shape);
    tensor.file = index;
    tensor.offset = entry.offset;
    tensor.size = entry.size;
    builder.add(std::move(tensor));
  }
  if (header.metadata.empty()) return;
  Json metadata = Json::object();
  // Appended without the lookup that operator[] does: the keys are distinct, and may be many.
  auto& list = metadata.get_ref<Json::object_t&>();
  for (auto& [key, value] : header.metadata) list.emplace_back(std::move(key), std::move(value));
  builder.set_metadata(std::move(metadata));
}

}  // namespace haul::core
