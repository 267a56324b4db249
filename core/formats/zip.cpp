#include "core/formats/zip.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryHeader = 0x02014b50;
constexpr std::uint32_t kEndRecord = 0x06054b50;
constexpr std::uint32_t kZip64Locator = 0x07064b50;
constexpr std::uint32_t kZip64EndRecord = 0x06064b50;
constexpr Bytes kLocalHeaderSize = 30;
constexpr Bytes kDirectoryHeaderSize = 46;
constexpr Bytes kEndRecordSize = 22;
constexpr Bytes kZip64LocatorSize = 20;
constexpr Bytes kZip64EndRecordSize = 56;
constexpr Bytes kLongestComment = 0xffff;
constexpr std::uint16_t kZip64Extra = 1;
constexpr std::uint32_t kFull16 = 0xffff;
constexpr std::uint32_t kFull32 = 0xffffffff;
constexpr unsigned kEncryptedFlags = 0x2041;  // encrypted, strongly encrypted, masked headers
constexpr unsigned kSizesFollowFlag = 0x0008;

[[noreturn]] void corrupt(const std::string& message) {
  throw Error(ErrorKind::kCorrupt, "zip archive: " + message);
}

[[noreturn]] void corrupt_entry(std::string_view name, std::string_view message) {
  corrupt(fmt::format("entry {}: {}", quote(name), message));
}

// Little-endian fields of a range of bytes; reading past its end is the caller's mistake and is
// turned into an error all the same.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t take(Bytes width) {
    const auto field = skip(width);
    std::uint64_t value = 0;
    for (Bytes i = width; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(field[i]);
    return value;
  }
  std::uint16_t u16() { return static_cast<std::uint16_t>(take(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(take(4)); }
  std::uint64_t u64() { return take(8); }

  std::span<const std::byte> skip(Bytes count) {
    if (count > bytes_.size()) corrupt("a record ends in the middle");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  std::string_view text(Bytes count) {
    const auto taken = skip(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  Bytes left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

struct Directory {
  Bytes offset = 0;
  Bytes size = 0;
  std::uint64_t count = 0;
};

Bytes find_end_record(std::span<const std::byte> archive) {
  if (archive.size() >= kEndRecordSize) {
    const Bytes last = archive.size() - kEndRecordSize;
    const Bytes first = last > kLongestComment ? last - kLongestComment : 0;
    for (Bytes at = last + 1; at-- > first;) {
      Fields fields(archive.subspan(at));
      if (fields.u32() != kEndRecord) continue;
      fields.skip(16);
      if (fields.u16() == last - at) return at;
    }
  }
  corrupt("it has no end record, so the file is cut off or no zip archive");
}

// The zip64 end record, when its locator stands before the plain end record at `end`.
std::optional<Bytes> find_zip64_record(std::span<const std::byte> archive, Bytes end) {
  if (end < kZip64LocatorSize) return std::nullopt;
  Fields locator(archive.subspan(end - kZip64LocatorSize));
  if (locator.u32() != kZip64Locator) return std::nullopt;
  const auto disk = locator.u32();
  const Bytes at = locator.u64();
  const auto disks = locator.u32();
  if (disk != 0 || disks > 1) corrupt("it is one part of several");
  const Bytes limit = end - kZip64LocatorSize;
  if (limit < kZip64EndRecordSize || at > limit - kZip64EndRecordSize) {
    corrupt("its zip64 end record lies outside of the file");
  }
  return at;
}

Directory read_zip64_record(std::span<const std::byte> archive, Bytes at, Bytes locator) {
  Fields fields(archive.subspan(at, locator - at));
  if (fields.u32() != kZip64EndRecord) corrupt("its zip64 end record has a wrong signature");
  if (fields.u64() != locator - at - 12) corrupt("its zip64 end record has a wrong size");
  fields.skip(4);
  const auto disk = fields.u32();
  const auto first_disk = fields.u32();
  const auto count_here = fields.u64();
  Directory directory;
  directory.count = fields.u64();
  directory.size = fields.u64();
  directory.offset = fields.u64();
  if (disk != 0 || first_disk != 0 || count_here != directory.count) {
    corrupt("it is one part of several");
  }
  return directory;
}

Directory find_directory(std::span<const std::byte> archive) {
  const Bytes end = find_end_record(archive);
  Fields fields(archive.subspan(end));
  fields.skip(4);
  const auto disk = fields.u16();
  const auto first_disk = fields.u16();
  const auto count_here = fields.u16();
  Directory directory;
  directory.count = fields.u16();
  directory.size = fields.u32();
  directory.offset = fields.u32();
  Bytes directory_end = end;
  if (const auto at = find_zip64_record(archive, end)) {
    const Directory large = read_zip64_record(archive, *at, end - kZip64LocatorSize);
    const auto agree = [](std::uint64_t small, std::uint64_t full, std::uint64_t value) {
      return small == full || small == value;
    };
    if (!agree(directory.count, kFull16, large.count) ||
        !agree(directory.size, kFull32, large.size) ||
        !agree(directory.offset, kFull32, large.offset)) {
      corrupt("its two end records contradict each other");
    }
    directory = large;
    directory_end = *at;
  } else if (disk != 0 || first_disk != 0 || count_here != directory.count) {
    corrupt("it is one part of several");
  }
  if (directory.offset > directory_end || directory_end - directory.offset != directory.size) {
    corrupt(fmt::format("its directory of {} bytes at {} does not end at {}, where it should",
                        directory.size, directory.offset, directory_end));
  }
  return directory;
}

// Replaces the sizes and the offset that did not fit in 32 bits.
void read_zip64_extra(std::span<const std::byte> extra, ZipEntry* entry, Bytes* header) {
  const bool wanted = entry->size == kFull32 || entry->stored_size == kFull32 || *header == kFull32;
  Fields fields(extra);
  while (wanted && fields.left() >= 4) {
    const auto id = fields.u16();
    const auto length = fields.u16();
    if (id != kZip64Extra) {
      fields.skip(length);
      continue;
    }
    Fields values(fields.skip(length));
    if (entry->size == kFull32) entry->size = values.u64();
    if (entry->stored_size == kFull32) entry->stored_size = values.u64();
    if (*header == kFull32) *header = values.u64();
    return;
  }
}

// Finds the data behind the local header at `header`, which must agree with the directory.
Bytes find_data(std::span<const std::byte> archive, Bytes limit, Bytes header,
                const ZipEntry& entry, unsigned flags) {
  if (header > limit || limit - header < kLocalHeaderSize) {
    corrupt_entry(entry.name, fmt::format("its header at {} lies outside of the file", header));
  }
  Fields fields(archive.subspan(header, limit - header));
  const bool is_header = fields.u32() == kLocalHeader;
  fields.skip(2);
  const auto local_flags = fields.u16();
  const auto method = fields.u16();
  fields.skip(8);
  const auto stored_size = fields.u32();
  fields.skip(4);
  const auto name_length = fields.u16();
  const auto extra_length = fields.u16();
  if (!is_header) corrupt_entry(entry.name, "there is no entry where the directory says");
  if (Bytes{name_length} + extra_length > fields.left()) {
    corrupt_entry(entry.name, "its header ends outside of the file");
  }
  if (fields.text(name_length) != entry.name || method != entry.method || local_flags != flags) {
    corrupt_entry(entry.name, "its own header contradicts the directory");
  }
  // An entry that was written as a stream tells its size only afterwards and in the directory.
  const bool size_known = (flags & kSizesFollowFlag) == 0 && stored_size != kFull32;
  if (size_known && stored_size != entry.stored_size) {
    corrupt_entry(entry.name, "its own header gives another size than the directory");
  }
  fields.skip(extra_length);
  if (entry.stored_size > fields.left()) {
    corrupt_entry(entry.name,
                  fmt::format("its {} bytes end outside of the file", entry.stored_size));
  }
  return limit - fields.left();
}

}  // namespace

ZipDirectory::ZipDirectory(std::span<const std::byte> archive) : archive_(archive) {
  const Directory directory = find_directory(archive);
  if (directory.count > directory.size / kDirectoryHeaderSize) {
    corrupt(fmt::format("{} entries do not fit in a directory of {} bytes", directory.count,
                        directory.size));
  }
  Fields fields(archive.subspan(directory.offset, directory.size));
  std::vector<Bytes> headers;
  headers.reserve(directory.count);
  entries_.reserve(directory.count);
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    if (fields.u32() != kDirectoryHeader) {
      corrupt(fmt::format("entry {} of its directory has a wrong signature", i));
    }
    fields.skip(4);
    const unsigned flags = fields.u16();
    ZipEntry entry;
    entry.method = fields.u16();
    fields.skip(8);
    entry.stored_size = fields.u32();
    entry.size = fields.u32();
    const auto name_length = fields.u16();
    const auto extra_length = fields.u16();
    const auto comment_length = fields.u16();
    fields.skip(8);
    Bytes header = fields.u32();
    entry.name = fields.text(name_length);
    read_zip64_extra(fields.skip(extra_length), &entry, &header);
    fields.skip(comment_length);
    entry.encrypted = (flags & kEncryptedFlags) != 0;
    entry.offset = find_data(archive, directory.offset, header, entry, flags);
    if (entry.method == 0 && !entry.encrypted && entry.size != entry.stored_size) {
      corrupt_entry(entry.name, fmt::format("it is stored as it is, yet {} bytes become {}",
                                            entry.stored_size, entry.size));
    }
    headers.push_back(header);
    entries_.push_back(entry);
  }
  if (fields.left() != 0) corrupt("its directory holds more than its entries");
  check_names();
  check_overlaps(std::move(headers));
}

void ZipDirectory::check_names() {
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  const auto name = [&](std::uint32_t i) { return entries_[i].name; };
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
  const auto twice =
      std::adjacent_find(by_name_.begin(), by_name_.end(),
                         [&](std::uint32_t a, std::uint32_t b) { return name(a) == name(b); });
  if (twice != by_name_.end()) corrupt_entry(name(*twice), "there are two entries of this name");
}

void ZipDirectory::check_overlaps(std::vector<Bytes> starts) const {
  std::vector<std::uint32_t> order(entries_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return starts[a] < starts[b]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const ZipEntry& before = entries_[order[i - 1]];
    if (before.offset + before.stored_size > starts[order[i]]) {
      corrupt_entry(entries_[order[i]].name,
                    fmt::format("it overlaps with {}", quote(before.name)));
    }
  }
}

const ZipEntry* ZipDirectory::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::uint32_t i, std::string_view wanted) { return entries_[i].name < wanted; });
  if (found == by_name_.end() || entries_[*found].name != name) return nullptr;
  return &entries_[*found];
}

std::string_view ZipDirectory::stored(const ZipEntry& entry) const {
  if (entry.encrypted || entry.method != 0) {
    const std::string how = entry.encrypted ? "encrypted"
                            : entry.method == 8
                                ? "compressed (deflated)"
                                : fmt::format("compressed (method {})", entry.method);
    throw Error(ErrorKind::kUnsupported,
                fmt::format("zip archive: entry {} is {}; only entries stored as they are can be "
                            "read in place",
                            quote(entry.name), how),
                "unpack the archive and pack it again without compression (zip -0 -r), or load the "
                "checkpoint in torch and save it again");
  }
  const auto bytes = archive_.subspan(entry.offset, entry.stored_size);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace haul::core
