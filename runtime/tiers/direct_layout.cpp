#include "runtime/tiers/direct_layout.h"

#include "runtime/tiers/disk_reader.h"

namespace haul::runtime {

DirectLayout lay_out_direct(Bytes offset, Bytes size, std::uintptr_t address, Bytes offset_align,
                            Bytes memory_align) {
  const Bytes head = offset % offset_align;
  const Bytes tail = (0 - (offset + size)) % offset_align;
  const Bytes shift = (0 - (address - head)) % memory_align;
  const Bytes end = offset + size;
  if (tail + shift <= kReadSlack) return {shift, end};
  // Both do not fit behind: the last, partial block is left out, and with it the tail.
  const Bytes last_block = end / offset_align * offset_align;
  return {shift, last_block > offset ? last_block : offset};
}

}  // namespace haul::runtime
