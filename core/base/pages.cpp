#include "core/base/pages.h"

#include <sys/mman.h>

#include <memory>

namespace haul::core {
namespace {

constexpr std::size_t kPage = std::size_t{64} << 10;  // the largest that systems use
constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers do not name

void advise(void* memory, std::size_t bytes, std::size_t page, int advice) {
  if (std::align(page, page, memory, bytes) == nullptr) return;
  madvise(memory, bytes / page * page, advice);
}

}  // namespace

void prefer_huge_pages(void* memory, std::size_t bytes) {
  advise(memory, bytes, kHugePage, MADV_HUGEPAGE);
}

void join_shared_pages(void* memory, std::size_t bytes) {
  if (std::align(kHugePage, kHugePage, memory, bytes) == nullptr) return;
  auto* const begin = static_cast<volatile std::byte*>(memory);
  for (std::size_t at = 0; at + kHugePage <= bytes; at += kHugePage) {
    static_cast<void>(begin[at]);  // a huge page is made around one that is there
  }
  advise(memory, bytes, kHugePage, kCollapse);
}

void bring_pages(void* memory, std::size_t bytes) {
  advise(memory, bytes, kPage, MADV_POPULATE_WRITE);
}

}  // namespace haul::core
