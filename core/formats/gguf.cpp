#include "core/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include <fmt/format.h>

#include "core/base/utf8.h"
#include "core/formats/ggml_type.h"
#include "haul/error.h"

namespace haul::core {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kMaxDimensions = 4;

[[noreturn]] void corrupt(std::string message) {
  throw Error(ErrorKind::kCorrupt, std::move(message));
}

// A name from the file as a message may show it.
std::string shown(std::string_view name) {
  constexpr std::size_t kLongest = 200;
  return name.size() <= kLongest ? std::string(name) : std::string(name.substr(0, kLongest)) + "…";
}

// The bytes of the header from front to back.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Bytes position() const { return position_; }
  Bytes left() const { return bytes_.size() - position_; }

  std::span<const std::byte> take(Bytes count, std::string_view what) {
    if (count > left()) {
      corrupt(fmt::format("{} needs {} bytes at offset {}, but the file has {} left", what, count,
                          position_, left()));
    }
    const auto result = bytes_.subspan(position_, count);
    position_ += count;
    return result;
  }

  template <typename T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view string(std::string_view what) {
    const auto length = number<std::uint64_t>(what);
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  Bytes position_ = 0;
};

GgufKind read_kind(Reader& reader) {
  const auto raw = reader.number<std::uint32_t>("a value's type");
  if (raw > static_cast<std::uint32_t>(GgufKind::kF64)) {
    corrupt(fmt::format("unknown value type {}", raw));
  }
  return static_cast<GgufKind>(raw);
}

GgufValue read_array(Reader& reader) {
  GgufValue value;
  value.is_array = true;
  value.kind = read_kind(reader);
  value.count = reader.number<std::uint64_t>("an array's length");
  if (value.kind == GgufKind::kArray) {
    throw Error(ErrorKind::kUnsupported, "an array of arrays, which haul does not read");
  }
  const bool strings = value.kind == GgufKind::kString;
  const Bytes smallest = strings ? sizeof(std::uint64_t) : scalar_bytes(value.kind);
  if (value.count > reader.left() / smallest) {
    corrupt(
        fmt::format("an array of {} elements needs at least {} bytes each, but the file has {} "
                    "left",
                    value.count, smallest, reader.left()));
  }
  if (!strings) {
    value.payload = reader.take(value.count * smallest, "an array");
    return value;
  }
  Reader scout = reader;
  for (std::uint64_t i = 0; i < value.count; ++i) scout.string("a string of an array");
  value.payload = reader.take(scout.position() - reader.position(), "an array");
  return value;
}

GgufValue read_value(Reader& reader) {
  const GgufKind kind = read_kind(reader);
  if (kind == GgufKind::kArray) return read_array(reader);
  GgufValue value;
  value.kind = kind;
  const Bytes size =
      kind == GgufKind::kString ? reader.number<std::uint64_t>("a string") : scalar_bytes(kind);
  value.payload = reader.take(size, "a value");
  return value;
}

void read_prologue(Reader& reader, GgufHeader& header) {
  const auto magic_bytes = reader.take(std::min<Bytes>(4, reader.left()), "the magic");
  const std::string_view magic(reinterpret_cast<const char*>(magic_bytes.data()),
                               magic_bytes.size());
  if (magic == "lmgg" || magic == "fmgg" || magic == "tjgg") {
    throw Error(ErrorKind::kUnsupported, "a GGML file of the time before GGUF",
                "convert it to GGUF with llama.cpp, or look for a GGUF of the model");
  }
  if (magic != "GGUF") {
    corrupt(fmt::format("no GGUF file: it begins with '{}' and not with 'GGUF'", shown(magic)));
  }
  header.version = reader.number<std::uint32_t>("the version");
  if (header.version != 0 && (header.version & 0xffff) == 0) {
    throw Error(ErrorKind::kUnsupported, "a big-endian GGUF file; haul reads little-endian ones",
                "convert it with gguf-convert-endian of the gguf package");
  }
  if (header.version != 2 && header.version != 3) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("GGUF version {}; haul reads versions 2 and 3", header.version),
                header.version == 1 ? "convert the model again with a newer llama.cpp" : "");
  }
}

void read_metadata(Reader& reader, std::uint64_t count, GgufHeader& header) {
  constexpr Bytes kSmallestEntry = 8 + 4 + 1;
  if (count > reader.left() / kSmallestEntry) {
    corrupt(fmt::format("{} metadata entries do not fit into the file's {} bytes", count,
                        reader.left()));
  }
  std::unordered_set<std::string_view> keys;
  header.metadata.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufEntry entry;
    entry.key = reader.string(fmt::format("the key of metadata entry {}", i));
    try {
      if (!keys.insert(entry.key).second) corrupt("the key is there twice");
      entry.value = read_value(reader);
    } catch (Error& error) {
      error.add_context(fmt::format("key '{}'", shown(entry.key)));
      throw;
    }
    header.metadata.push_back(entry);
  }
}

void read_alignment(GgufHeader& header) {
  const GgufValue* value = header.find("general.alignment");
  if (value == nullptr) return;
  const auto alignment = value->integer();
  if (value->kind != GgufKind::kU32 || !alignment ||
      !std::has_single_bit(static_cast<std::uint64_t>(*alignment))) {
    corrupt("key 'general.alignment': expected a uint32 that is a power of 2");
  }
  header.alignment = static_cast<Bytes>(*alignment);
}

// The size of the tensor's data; checks that its rows are whole blocks.
Bytes data_size(const GgmlType& type, const Shape& shape) {
  const std::int64_t row = shape.empty() ? 1 : shape.back();
  if (row % type.block_elements != 0) {
    corrupt(fmt::format("rows of {} elements are not a multiple of the {} that a block of {} holds",
                        row, type.block_elements, type.name));
  }
  std::uint64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(size), &elements)) {
      corrupt("the product of its dimensions overflows");
    }
  }
  Bytes size = 0;
  if (__builtin_mul_overflow(elements / type.block_elements, Bytes{type.block_bytes}, &size)) {
    corrupt("its size in bytes overflows");
  }
  return size;
}

const GgmlType& readable_type(std::uint32_t id) {
  const GgmlType* type = find_ggml_type(id);
  if (type == nullptr) {
    throw Error(ErrorKind::kUnsupported, fmt::format("unknown tensor type {}", id),
                "the file may be newer than this haul, or damaged");
  }
  if (!type->readable) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("tensor type {}, which haul does not read", type->name),
                "take a file of the model in F16, BF16, Q8_0 or one of Q2_K to Q6_K");
  }
  return *type;
}

// Everything of a tensor's info after its name. The offset is still relative to the data.
void read_tensor_info(Reader& reader, Bytes alignment, StoredTensor& tensor) {
  const auto dimensions = reader.number<std::uint32_t>("the number of dimensions");
  if (dimensions > kMaxDimensions) {
    corrupt(fmt::format("{} dimensions; at most {} are allowed", dimensions, kMaxDimensions));
  }
  tensor.shape.resize(dimensions);
  // The file lists the fastest dimension first.
  for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
    *size = reader.number<std::int64_t>("a dimension");
    if (*size < 0) corrupt(fmt::format("dimension {} is negative", *size));
  }
  const GgmlType& type = readable_type(reader.number<std::uint32_t>("the tensor's type"));
  tensor.dtype = type.dtype;
  tensor.coding = type.coding;
  tensor.size = data_size(type, tensor.shape);
  tensor.offset = reader.number<std::uint64_t>("the tensor's offset");
  if (tensor.offset % alignment != 0) {
    corrupt(
        fmt::format("offset {} is not a multiple of the alignment {}", tensor.offset, alignment));
  }
}

void read_tensors(Reader& reader, std::uint64_t count, GgufHeader& header) {
  constexpr Bytes kSmallestInfo = 8 + 4 + 4 + 8;
  if (count > reader.left() / kSmallestInfo) {
    corrupt(fmt::format("{} tensors do not fit into the file's {} bytes", count, reader.left()));
  }
  std::unordered_set<std::string_view> names;
  header.tensors.resize(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    StoredTensor& tensor = header.tensors[i];
    const std::string_view name = reader.string(fmt::format("the name of tensor {}", i));
    try {
      if (!is_utf8(name)) corrupt("the name is not UTF-8");
      if (!names.insert(name).second) corrupt("the name is there twice");
      tensor.name = name;
      read_tensor_info(reader, header.alignment, tensor);
    } catch (Error& error) {
      error.add_context(fmt::format("tensor '{}'", shown(name)));
      throw;
    }
  }
}

// Makes offsets absolute and checks that the data lies in the file and nothing overlaps.
void place_tensors(Bytes file_size, GgufHeader& header) {
  for (StoredTensor& tensor : header.tensors) {
    Bytes end = 0;
    if (__builtin_add_overflow(tensor.offset, header.data_offset, &tensor.offset) ||
        __builtin_add_overflow(tensor.offset, tensor.size, &end) || end > file_size) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("tensor '{}': {} bytes at offset {} reach past the end of the file "
                              "({} bytes)",
                              shown(tensor.name), tensor.size, tensor.offset, file_size),
                  "the file may be cut short: fetch it again");
    }
  }
  std::vector<std::uint32_t> order(header.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::erase_if(order, [&](std::uint32_t i) { return header.tensors[i].size == 0; });
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return header.tensors[a].offset < header.tensors[b].offset;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const StoredTensor& before = header.tensors[order[i - 1]];
    const StoredTensor& after = header.tensors[order[i]];
    if (after.offset - before.offset < before.size) {
      corrupt(fmt::format("tensors '{}' and '{}' overlap at offset {}", shown(before.name),
                          shown(after.name), after.offset));
    }
  }
}

GgufHeader parse(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  GgufHeader header;
  read_prologue(reader, header);
  const auto tensor_count = reader.number<std::uint64_t>("the number of tensors");
  const auto entry_count = reader.number<std::uint64_t>("the number of metadata entries");
  read_metadata(reader, entry_count, header);
  read_alignment(header);
  read_tensors(reader, tensor_count, header);
  header.data_offset =
      (reader.position() + header.alignment - 1) / header.alignment * header.alignment;
  place_tensors(bytes.size(), header);
  return header;
}

}  // namespace

const GgufValue* GgufHeader::find(std::string_view key) const {
  for (const GgufEntry& entry : metadata) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

Json GgufHeader::json() const {
  Json result = Json::object();
  for (const GgufEntry& entry : metadata) {
    if (!is_utf8(entry.key)) continue;
    // Not operator[]: keys are unique here, and an ordered Json looks them up one by one.
    if (auto value = entry.value.json()) {
      result.get_ref<Json::object_t&>().push_back({std::string(entry.key), std::move(*value)});
    }
  }
  return result;
}

GgufHeader parse_gguf(std::span<const std::byte> bytes, std::string_view source) {
  try {
    return parse(bytes);
  } catch (Error& error) {
    error.add_context(source);
    throw;
  }
}

GgufFile::GgufFile(const std::filesystem::path& path)
    : file_(path), header_(parse_gguf(file_.bytes(), path.string())) {}

std::span<const std::byte> GgufFile::bytes(const StoredTensor& tensor) const {
  return file_.bytes().subspan(tensor.offset, tensor.size);
}

}  // namespace haul::core
