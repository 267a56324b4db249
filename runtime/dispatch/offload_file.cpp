#include "runtime/dispatch/offload_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/disk_space.h"
#include "core/base/file.h"
#include "core/formats/safetensors.h"
#include "core/formats/safetensors_writer.h"
#include "haul/error.h"

namespace haul::runtime {
namespace {

constexpr std::string_view kKey = "haul_offload";
constexpr std::string_view kOwn = "haul-own-";  // begins the name of a file of one model alone

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

// What the file must say of itself. Without a source that can be told from others it is a number
// that no other file has: a process's number comes again, in a container even at once.
std::string identity_of(const std::vector<core::HeaderTensor>& headers, const std::string& source) {
  std::string text = source;
  if (text.empty()) {
    std::random_device random;
    for (int i = 0; i < 4; ++i) text += fmt::format("{:08x}", random());
  }
  for (const core::HeaderTensor& header : headers) {
    text += fmt::format("\n{} {}", header.name, name(header.dtype));
    for (const std::int64_t size : header.shape) text += fmt::format(" {}", size);
  }
  return hash(text);
}

// A file whose process holds a lock on it for as long as it is of use.
bool is_held(const std::string& name) {
  const bool unfinished =
      name.starts_with(".haul-") && name.find(".safetensors.") != std::string::npos;
  return unfinished || (name.starts_with(kOwn) && name.ends_with(".safetensors"));
}

void remove_leftovers(const std::filesystem::path& folder) {
  std::error_code code;
  for (std::filesystem::directory_iterator it(folder, code), end; !code && it != end;
       it.increment(code)) {
    if (!is_held(it->path().filename().string())) continue;
    const int fd = ::open(it->path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(it->path().c_str());
    ::close(fd);
  }
}

// Makes the file under its temporary name, locked. Another process that cleans up may take it away
// before it is: then once more. A file system that knows no locks has no one who cleans up.
void begin(std::optional<core::SafetensorsWriter>& writer, const std::filesystem::path& path,
           const std::vector<core::HeaderTensor>& headers, const std::string& identity) {
  for (;;) {
    writer.emplace(path, headers, core::SafetensorsMetadata{{std::string(kKey), identity}});
    const bool others =
        ::flock(writer->descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat status {};
    if (!others && ::fstat(writer->descriptor(), &status) == 0 && status.st_nlink > 0) return;
  }
}

// Removes a file at its end, and holds the lock on it until then.
class Owner {
 public:
  Owner(std::filesystem::path path, int descriptor)
      : path_(std::move(path)), descriptor_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {}
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (::getpid() == process_) ::unlink(path_.c_str());  // a fork has it too, and does not own it
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  std::filesystem::path path_;
  int descriptor_;
  pid_t process_ = ::getpid();
};

std::optional<core::SafetensorsHeader> find_whole(const std::filesystem::path& path,
                                                  const std::string& identity) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return std::nullopt;
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

OffloadFile write_offload_file(const std::filesystem::path& folder,
                               const std::vector<std::size_t>& units, const PlacedModel& placed,
                               const UnitSource& source) {
  if (folder.empty()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is to lie on disk, and no file holds it as it is needed",
                            placed.units[units.front()].name),
                "name an offload_folder");
  }
  std::vector<core::HeaderTensor> headers;
  headers.reserve(units.size());
  for (const std::size_t unit : units) headers.push_back(header_of(placed.units[unit]));
  const std::string from = source.identity();
  const std::string identity = identity_of(headers, from);
  const std::filesystem::path path =
      folder / fmt::format("{}{}.safetensors", from.empty() ? kOwn : "haul-", identity);

  OffloadFile file;
  std::optional<core::SafetensorsHeader> header = find_whole(path, identity);
  if (!header) {
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    if (code) {
      throw Error(ErrorKind::kResource, fmt::format("{}: cannot make the offload folder: {}",
                                                    folder.string(), code.message()));
    }
    remove_leftovers(folder);
    core::require_disk_space(folder, core::safetensors_size(headers));
    std::optional<core::SafetensorsWriter> writer;
    begin(writer, path, headers, identity);
    for (const std::size_t unit : units) {
      source.stream(unit, [&](std::span<const std::byte> piece) { writer->write(piece); });
    }
    if (from.empty()) file.owner = std::make_shared<Owner>(path, writer->descriptor());
    writer->commit();
    header = find_whole(path, identity);
    if (!header) {
      throw Error(ErrorKind::kCorrupt, fmt::format("{}: not as it was written", path.string()));
    }
  }
  std::map<std::string, Bytes> offsets;
  for (const core::SafetensorsEntry& entry : header->tensors) offsets[entry.name] = entry.offset;
  for (const std::size_t unit : units) {
    file.ranges[unit] = {path, offsets.at(placed.units[unit].name)};
  }
  return file;
}

}  // namespace haul::runtime
