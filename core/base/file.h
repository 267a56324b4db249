#pragma once

// Files: read-only maps, whole small files, and writes that are either complete or absent.
// All functions throw Error with the path and the system's reason.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "haul/bytes.h"

namespace haul::core {

// A file mapped for reading. The bytes stay valid, at the same address, until the object dies;
// moving it keeps them. An empty file gives an empty span. May be shared between threads.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // Tells the kernel that a part has been read and will not be again, so that streaming through a
  // large file does not fill memory with it.
  void drop(Bytes offset, Bytes size) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A whole file; one that is longer than `limit` is refused as kCorrupt.
std::string read_file(const std::filesystem::path& path, Bytes limit);

// A file under construction: written beside its final path under a temporary name, moved there by
// commit() after an fsync, and removed by the destructor when it was not committed.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Bytes written so far.
  Bytes size() const { return size_; }
  int descriptor() const { return descriptor_; }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  Bytes size_ = 0;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace haul::core
