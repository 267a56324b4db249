#include "core/base/pages.h"

#include <sys/mman.h>

#include <memory>

namespace haul::core {
namespace {

constexpr std::size_t kPage = std::size_t{64} << 10;  // the largest that systems use
constexpr std::size_t kHugePage = std::size_t{2} << 20;

void advise(void* memory, std::size_t bytes, std::size_t page, int advice) {
  if (std::align(page, page, memory, bytes) == nullptr) return;
  madvise(memory, bytes / page * page, advice);
}

}  // namespace

void prefer_huge_pages(void* memory, std::size_t bytes) {
  advise(memory, bytes, kHugePage, MADV_HUGEPAGE);
}

void bring_pages(void* memory, std::size_t bytes) {
  advise(memory, bytes, kPage, MADV_POPULATE_WRITE);
}

}  // namespace haul::core
