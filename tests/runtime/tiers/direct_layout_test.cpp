#include "runtime/tiers/direct_layout.h"

#include <gtest/gtest.h>

#include "runtime/tiers/disk_reader.h"

namespace haul::runtime {
namespace {

Bytes down(Bytes value, Bytes align) {
  return value / align * align;
}

TEST(DirectLayout, IsAlignedAndWithinTheSlackForEveryAlignment) {
  for (const Bytes offset_align : {512, 1024, 4096}) {
    for (Bytes memory_align = 4; memory_align <= offset_align; memory_align *= 2) {
      for (Bytes offset = 0; offset < 3 * 4096; offset += 104) {
        for (const Bytes size : {1, 8, 511, 512, 4000, 4096, 4097, 12289, 100000}) {
          for (std::uintptr_t address = 1 << 20; address < (1 << 20) + 4096; address += 192) {
            const auto layout = lay_out_direct(offset, size, address, offset_align, memory_align);
            ASSERT_GE(layout.end, offset);
            ASSERT_LE(layout.end, offset + size);
            ASSERT_LT(offset + size - layout.end, offset_align) << "too much is left out";
            if (layout.end == offset) continue;
            const Bytes first = down(offset, offset_align);
            const Bytes last = down(layout.end + offset_align - 1, offset_align);
            const Bytes from = address + layout.shift + first - offset;
            ASSERT_EQ(from % memory_align, 0u);
            ASSERT_GE(from, address - kReadSlack);
            ASSERT_LE(from + last - first, address + size + kReadSlack);
          }
        }
      }
    }
  }
}

TEST(DirectLayout, MovesNothingWhereAddressAndOffsetAgree) {
  EXPECT_EQ(lay_out_direct(8, 1000, 4096 + 8, 512, 512).shift, 0u);
  EXPECT_EQ(lay_out_direct(8, 1000, 4096 + 64, 512, 4).shift, 0u);
  EXPECT_EQ(lay_out_direct(8, 1000, 4096 + 64, 512, 512).shift, 456u);
}

}  // namespace
}  // namespace haul::runtime
