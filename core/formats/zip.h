#pragma once

// The table of contents of a zip archive in memory: where each entry's bytes lie. Reads zip64,
// copies nothing, decompresses nothing. Pure; any thread. Errors are kCorrupt or kUnsupported and
// name the entry; the caller adds the file's name.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "haul/bytes.h"

namespace haul::core {

struct ZipEntry {
  std::string_view name;  // into the archive's bytes
  Bytes offset = 0;       // of the data, from the start of the archive
  Bytes stored_size = 0;  // as it lies in the archive
  Bytes size = 0;         // after decompression
  int method = 0;         // 0: stored
  bool encrypted = false;
};

class ZipDirectory {
 public:
  // Reads and checks the whole directory. Refused: a directory that does not end where the end
  // record begins, entries outside of the file, entries that overlap, two entries of one name,
  // local headers that contradict the directory, archives in several parts.
  // The bytes must outlive the object.
  explicit ZipDirectory(std::span<const std::byte> archive);

  // In the directory's order.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;
  // The data of an entry, which must be neither compressed nor encrypted: kUnsupported otherwise.
  std::string_view stored(const ZipEntry& entry) const;

 private:
  void check_names();
  void check_overlaps(std::vector<Bytes> starts) const;

  std::span<const std::byte> archive_;
  std::vector<ZipEntry> entries_;
  std::vector<std::uint32_t> by_name_;  // indices into entries_, sorted by name
};

}  // namespace haul::core
