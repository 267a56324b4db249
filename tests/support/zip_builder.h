#pragma once

// Zip archives, right or wrong in chosen places.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace haul::test {

// `value` in `width` bytes, least significant first.
inline std::string little_endian(std::uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i, value >>= 8) bytes += static_cast<char>(value & 0xff);
  return bytes;
}

struct ZipPart {
  std::string name;
  std::string data;
  unsigned method = 0;
  unsigned flags = 0;
  // What the headers say where it differs from the truth.
  std::optional<std::string> local_name = std::nullopt;
  std::optional<std::uint32_t> local_size = std::nullopt;
  std::optional<std::uint64_t> size = std::nullopt;
  std::optional<std::uint64_t> stored_size = std::nullopt;
  std::optional<std::uint64_t> header_offset = std::nullopt;
};

struct ZipBuilder {
  std::vector<ZipPart> parts;
  bool zip64 = false;  // all sizes and offsets in the 64-bit records
  std::string comment;
  std::string before_end;  // bytes between the directory and its end record
  std::optional<std::uint64_t> count = std::nullopt;
  std::optional<std::uint64_t> directory_offset = std::nullopt;

  std::string build() const {
    constexpr std::uint64_t kFull = 0xffffffff;
    std::string archive;
    std::string directory;
    for (const ZipPart& part : parts) {
      const std::uint64_t header = part.header_offset.value_or(archive.size());
      const std::uint64_t size = part.size.value_or(part.data.size());
      const std::uint64_t stored_size = part.stored_size.value_or(part.data.size());
      const bool streamed = (part.flags & 8) != 0;
      const std::string local_name = part.local_name.value_or(part.name);
      archive += "PK\x03\x04" + little_endian(20, 2) + little_endian(part.flags, 2) +
                 little_endian(part.method, 2) + little_endian(0, 8) +
                 little_endian(part.local_size.value_or(streamed ? 0 : part.data.size()), 4) +
                 little_endian(streamed ? 0 : size, 4) + little_endian(local_name.size(), 2) +
                 little_endian(0, 2) + local_name + part.data;
      if (streamed) archive += "PK\x07\x08" + little_endian(0, 4) + little_endian(size, 8);
      const std::string extra = zip64 ? little_endian(1, 2) + little_endian(24, 2) +
                                            little_endian(size, 8) + little_endian(stored_size, 8) +
                                            little_endian(header, 8)
                                      : std::string();
      directory += "PK\x01\x02" + little_endian(20, 2) + little_endian(20, 2) +
                   little_endian(part.flags, 2) + little_endian(part.method, 2) +
                   little_endian(0, 8) + little_endian(zip64 ? kFull : stored_size, 4) +
                   little_endian(zip64 ? kFull : size, 4) + little_endian(part.name.size(), 2) +
                   little_endian(extra.size(), 2) + little_endian(0, 10) +
                   little_endian(zip64 ? kFull : header, 4) + part.name + extra;
    }
    const std::uint64_t at = directory_offset.value_or(archive.size());
    const std::uint64_t entries = count.value_or(parts.size());
    archive += directory + before_end;
    if (zip64) {
      const std::uint64_t record = archive.size();
      archive += "PK\x06\x06" + little_endian(44, 8) + little_endian(45, 2) + little_endian(45, 2) +
                 little_endian(0, 8) + little_endian(entries, 8) + little_endian(entries, 8) +
                 little_endian(directory.size(), 8) + little_endian(at, 8);
      archive +=
          "PK\x06\x07" + little_endian(0, 4) + little_endian(record, 8) + little_endian(1, 4);
    }
    archive += "PK\x05\x06" + little_endian(0, 4) + little_endian(zip64 ? 0xffff : entries, 2) +
               little_endian(zip64 ? 0xffff : entries, 2) +
               little_endian(zip64 ? kFull : directory.size(), 4) +
               little_endian(zip64 ? kFull : at, 4) + little_endian(comment.size(), 2) + comment;
    return archive;
  }
};

}  // namespace haul::test
