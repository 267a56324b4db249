#include "tokenizers/pages.h"

#include <sys/mman.h>

#include <new>

#include "core/base/pages.h"

namespace haul::tokenizers {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

ZeroPages::ZeroPages(std::size_t bytes) {
  const bool is_huge = bytes >= kHugePage;
  const std::size_t mapped = is_huge ? bytes + kHugePage : bytes;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = std::unique_ptr<void, Unmap>(memory, Unmap{mapped});
  begin_ = memory;
  if (!is_huge) return;
  std::size_t space = mapped;
  std::align(kHugePage, bytes, begin_, space);
  core::prefer_huge_pages(begin_, bytes);
}

void ZeroPages::Unmap::operator()(void* memory) const {
  munmap(memory, bytes);
}

}  // namespace haul::tokenizers
