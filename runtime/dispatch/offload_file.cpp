#include "runtime/dispatch/offload_file.h"

#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/file.h"
#include "core/formats/safetensors.h"
#include "core/formats/safetensors_writer.h"
#include "haul/error.h"

namespace haul::runtime {
namespace {

constexpr std::string_view kKey = "haul_offload";

// FNV-1a, twice with different starts: 128 bits over some kilobytes of names.
std::string hash(std::string_view text) {
  std::uint64_t a = 14695981039346656037ULL;
  std::uint64_t b = 0x9e3779b97f4a7c15ULL;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    b = (b ^ static_cast<unsigned char>(c)) * 1099511628211ULL + (a >> 29);
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

core::HeaderTensor header_of(const Unit& unit) {
  // Memory that several tensors share has no shape of its own.
  const bool whole = unit.tensors.size() == 1 && unit.tensors[0].is_contiguous() &&
                     unit.tensors[0].numel() * c10::elementSize(unit.type) == unit.size;
  if (whole) return {unit.name, to_dtype(unit.type), unit.tensors[0].sizes().vec()};
  return {unit.name, Dtype::kU8, {static_cast<std::int64_t>(unit.size)}};
}

// What the file must say of itself.
std::string identity_of(const std::vector<core::HeaderTensor>& headers, const UnitSource& source) {
  std::string text = source.identity();
  if (text.empty()) {
    static std::atomic<int> count = 0;
    text = fmt::format("process {} {}", getpid(), ++count);
  }
  for (const core::HeaderTensor& header : headers) {
    text += fmt::format("\n{} {}", header.name, name(header.dtype));
    for (const std::int64_t size : header.shape) text += fmt::format(" {}", size);
  }
  return hash(text);
}

std::optional<core::SafetensorsHeader> find_whole(const std::filesystem::path& path,
                                                  const std::string& identity) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  try {
    const core::MappedFile file(path);
    core::SafetensorsHeader header = core::read_safetensors_header(file.bytes(), path.string());
    for (const auto& [key, value] : header.metadata) {
      if (key == kKey && value == identity) return header;
    }
  } catch (const Error&) {  // not one that haul wrote: written anew
  }
  return std::nullopt;
}

}  // namespace

std::map<std::size_t, UnitSource::FileRange> write_offload_file(
    const std::filesystem::path& folder, const std::vector<std::size_t>& units,
    const PlacedModel& placed, const UnitSource& source) {
  if (folder.empty()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is to lie on disk, and no file holds it as it is needed",
                            placed.units[units.front()].name),
                "name an offload_folder");
  }
  std::vector<core::HeaderTensor> headers;
  for (const std::size_t unit : units) headers.push_back(header_of(placed.units[unit]));
  const std::string identity = identity_of(headers, source);
  const std::filesystem::path path = folder / fmt::format("haul-{}.safetensors", identity);

  std::optional<core::SafetensorsHeader> header = find_whole(path, identity);
  if (!header) {
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    if (code) {
      throw Error(ErrorKind::kResource, fmt::format("{}: cannot make the offload folder: {}",
                                                    folder.string(), code.message()));
    }
    core::SafetensorsWriter writer(path, headers, {{std::string(kKey), identity}});
    for (const std::size_t unit : units) {
      source.stream(unit, [&](std::span<const std::byte> piece) { writer.write(piece); });
    }
    writer.commit();
    header = find_whole(path, identity);
    if (!header) {
      throw Error(ErrorKind::kCorrupt, fmt::format("{}: not as it was written", path.string()));
    }
  }
  std::map<std::string, Bytes> offsets;
  for (const core::SafetensorsEntry& entry : header->tensors) offsets[entry.name] = entry.offset;
  std::map<std::size_t, UnitSource::FileRange> ranges;
  for (const std::size_t unit : units) {
    ranges[unit] = {path, offsets.at(placed.units[unit].name)};
  }
  return ranges;
}

}  // namespace haul::runtime
