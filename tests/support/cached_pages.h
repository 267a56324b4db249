#pragma once

// What the page cache holds of a file.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>

#include "haul/bytes.h"

namespace haul::test {

inline Bytes page_size() {
  return static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
}

// By mincore.
inline std::size_t cached_pages(int file) {
  const auto size = static_cast<Bytes>(::lseek(file, 0, SEEK_END));
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  std::vector<unsigned char> pages((size + page_size() - 1) / page_size());
  EXPECT_EQ(::mincore(memory, size, pages.data()), 0);
  ::munmap(memory, size);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

// Pages that a processor has yet to put in order stay at first.
inline void drop_cached_pages(int file) {
  ::fsync(file);
  for (int i = 0; i < 100; ++i) {
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    if (cached_pages(file) == 0) return;
    ::usleep(10'000);
  }
  ADD_FAILURE() << "pages stay in the page cache";
}

// Whether all of it is there within two minutes.
inline bool comes_into_page_cache(int file) {
  const auto size = static_cast<Bytes>(::lseek(file, 0, SEEK_END));
  for (int i = 0; i < 12000; ++i) {
    if (cached_pages(file) == (size + page_size() - 1) / page_size()) return true;
    ::usleep(10'000);
  }
  return false;
}

}  // namespace haul::test
