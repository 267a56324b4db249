#include "runtime/tiers/arena.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace haul::runtime {
namespace {

TEST(Arena, PlacesPiecesRoundAndRound) {
  Arena arena(100);
  EXPECT_EQ(arena.allocate(40), 0U);
  EXPECT_EQ(arena.allocate(40), 40U);
  EXPECT_FALSE(arena.allocate(40));
  arena.free(0);
  EXPECT_EQ(arena.allocate(30), 0U) << "behind the last one is no room";
  EXPECT_EQ(arena.allocate(20), 80U);
  EXPECT_EQ(arena.used(), 90U);
}

TEST(Arena, JoinsGapsOnBothSides) {
  Arena arena(90);
  for (Bytes offset = 0; offset < 90; offset += 30) EXPECT_EQ(arena.allocate(30), offset);
  arena.free(0);
  arena.free(60);
  EXPECT_FALSE(arena.allocate(40));
  arena.free(30);
  EXPECT_EQ(arena.allocate(90), 0U);
}

TEST(Arena, NeverGivesAByteTwice) {
  std::mt19937 random(1);
  Arena arena(1000);
  std::vector<int> owner(1000, 0);
  struct Piece {
    Bytes offset, size;
    int id;
  };
  std::vector<Piece> pieces;
  for (int id = 1; id < 5000; ++id) {
    if (pieces.empty() || random() % 2 == 0) {
      const Bytes size = 1 + random() % 200;
      const auto offset = arena.allocate(size);
      if (!offset) continue;
      ASSERT_LE(*offset + size, 1000U);
      for (Bytes i = *offset; i < *offset + size; ++i) {
        ASSERT_EQ(owner[i], 0);
        owner[i] = id;
      }
      pieces.push_back({*offset, size, id});
    } else {
      const std::size_t which = random() % pieces.size();
      for (Bytes i = 0; i < pieces[which].size; ++i) owner[pieces[which].offset + i] = 0;
      arena.free(pieces[which].offset);
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (const Piece& piece : pieces) arena.free(piece.offset);
  EXPECT_EQ(arena.used(), 0U);
  EXPECT_TRUE(arena.allocate(1000)) << "all gaps were joined";
}

}  // namespace
}  // namespace haul::runtime
