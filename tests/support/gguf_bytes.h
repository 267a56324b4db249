#pragma once

// GGUF files put together by hand, with every number open to be wrong.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace haul::test {

struct GgufInfo {
  std::string name;
  std::vector<std::uint64_t> dimensions;  // fastest first, as in the file
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
};

class GgufBytes {
 public:
  template <typename T>
  static std::string raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string string(std::string_view text) {
    return raw<std::uint64_t>(text.size()) + std::string(text);
  }

  // A metadata entry of a raw value.
  GgufBytes& entry(std::string_view key, std::uint32_t type, const std::string& value) {
    entries_ += string(key) + raw(type) + value;
    ++entry_count;
    return *this;
  }
  GgufBytes& text(std::string_view key, std::string_view value) {
    return entry(key, 8, string(value));
  }
  GgufBytes& u32(std::string_view key, std::uint32_t value) { return entry(key, 4, raw(value)); }
  GgufBytes& f32(std::string_view key, float value) { return entry(key, 6, raw(value)); }
  GgufBytes& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw<std::uint32_t>(8) + raw<std::uint64_t>(values.size());
    for (const std::string& value : values) bytes += string(value);
    return entry(key, 9, bytes);
  }
  GgufBytes& tensor(const GgufInfo& info) {
    infos_ += string(info.name) + raw(static_cast<std::uint32_t>(info.dimensions.size()));
    for (const std::uint64_t size : info.dimensions) infos_ += raw(size);
    infos_ += raw(info.type) + raw(info.offset);
    ++tensor_count;
    return *this;
  }
  // An F32 tensor with its data, put behind those before it.
  GgufBytes& floats(const std::string& name, const std::vector<std::uint64_t>& dimensions,
                    const std::vector<float>& values) {
    tensor({name, dimensions, 0, data.size()});
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    data.resize((data.size() + 31) / 32 * 32);
    return *this;
  }

  std::string bytes() const {
    std::string header = magic + raw(version) + raw(tensor_count) + raw(entry_count);
    header += entries_ + infos_;
    header.resize((header.size() + alignment - 1) / alignment * alignment);
    return header + data;
  }

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t tensor_count = 0;
  std::uint64_t entry_count = 0;
  std::size_t alignment = 32;
  std::string data;

 private:
  std::string entries_;
  std::string infos_;
};

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace haul::test
