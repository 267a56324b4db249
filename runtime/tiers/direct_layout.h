#pragma once

// Where in memory the bytes of an O_DIRECT read go. Pure.

#include <cstdint>

#include "haul/bytes.h"

namespace haul::runtime {

struct DirectLayout {
  Bytes shift = 0;  // bytes come this far behind their place, and are moved back when all have come
  Bytes end = 0;    // file offset where direct reading must end; what is wanted behind it is not
                    // to be read past the page cache
};

// For a read of [offset, offset + size) to `address`. Direct reads of any part of [offset, end)
// that begin and end at multiples of `offset_align` (or at `offset` and `end`, widened to such
// multiples), put at the address plus `shift`, are aligned in memory and stay within kReadSlack of
// the bytes wanted. REQUIRES: memory_align <= offset_align <= kReadSlack, powers of 2.
DirectLayout lay_out_direct(Bytes offset, Bytes size, std::uintptr_t address, Bytes offset_align,
                            Bytes memory_align);

}  // namespace haul::runtime
