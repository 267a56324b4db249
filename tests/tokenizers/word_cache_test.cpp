#include "tokenizers/word_cache.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace haul::tokenizers {
namespace {

using testing::ElementsAreArray;
using Ids = std::vector<std::uint32_t>;

// Words in memory of their own size, so that reading past one is seen by the sanitizer.
void put(WordTable& table, const std::string& word, std::uint32_t tag, const Ids& ids) {
  WordTable::Query query;
  WordTable::make_query(word, tag, word.data() + word.size(), query);
  table.put(query, ids.data(), ids.size());
}

bool find(const WordTable& table, const std::string& word, std::uint32_t tag, Ids& ids) {
  WordTable::Query query;
  WordTable::make_query(word, tag, word.data() + word.size(), query);
  IdBuffer found;
  if (!table.append(query, found)) return false;
  ids.assign(found.begin(), found.end());
  return true;
}

Ids some_ids(std::size_t count, std::uint32_t first) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(first + static_cast<std::uint32_t>(i) * 7);
  return ids;
}

TEST(WordTable, GivesBackTheIdsOfWordsOfEverySize) {
  WordTable table(12);
  Ids found;
  for (std::size_t size = 1; size <= WordTable::kLongWord; ++size) {
    const std::string word(size, 'w');
    EXPECT_FALSE(find(table, word, 0, found));
    const Ids ids = some_ids(size % 9, static_cast<std::uint32_t>(size));
    put(table, word, 0, ids);
    ASSERT_TRUE(find(table, word, 0, found)) << size;
    EXPECT_THAT(found, ElementsAreArray(ids)) << size;
  }
}

TEST(WordTable, KeepsIdsThatTakeAllBits) {
  WordTable table(12);
  Ids found;
  for (std::size_t count = 1; count <= 6; ++count) {
    for (const std::uint32_t id : {0u, 0xFFFFFFu, 0x1000000u, 0xFFFFFFFFu}) {
      const std::string word = std::to_string(count) + "/" + std::to_string(id);
      const Ids ids(count, id);
      put(table, word, 0, ids);
      ASSERT_TRUE(find(table, word, 0, found));
      EXPECT_THAT(found, ElementsAreArray(ids));
    }
  }
}

TEST(WordTable, TellsWordsApartByBytesSizeAndTag) {
  WordTable table(12);
  put(table, std::string("a"), 0, {1});
  put(table, std::string("a\0", 2), 0, {2});
  put(table, std::string("a"), 1, {3});
  put(table, std::string(20, 'a'), 0, {4});
  put(table, std::string(19, 'a') + "b", 0, {5});
  Ids found;
  const auto expect = [&](const std::string& word, std::uint32_t tag, std::uint32_t id) {
    ASSERT_TRUE(find(table, word, tag, found));
    EXPECT_THAT(found, ElementsAreArray({id}));
  };
  expect("a", 0, 1);
  expect(std::string("a\0", 2), 0, 2);
  expect("a", 1, 3);
  expect(std::string(20, 'a'), 0, 4);
  expect(std::string(19, 'a') + "b", 0, 5);
  EXPECT_FALSE(find(table, "a", 2, found));
  EXPECT_FALSE(find(table, std::string(20, 'a'), 1, found));
}

TEST(WordTable, LeavesOutWhatIsTooLong) {
  WordTable table(12);
  Ids found;
  put(table, std::string(WordTable::kLongWord + 1, 'x'), 0, {1});
  EXPECT_FALSE(find(table, std::string(WordTable::kLongWord + 1, 'x'), 0, found));
  put(table, "many", 0, Ids(WordTable::kLongWord + 1, 1));
  EXPECT_FALSE(find(table, "many", 0, found));
}

TEST(WordCache, ReplacesAFullTableByALargerOneUntilItIsLargeEnough) {
  WordCache cache;
  std::shared_ptr<WordTable> table = cache.table();
  int bits = table->bits();
  for (int i = 0; i < 4; ++i) {
    for (int word = 0; !table->is_full(); ++word) put(*table, std::to_string(word), 0, {1});
    const std::shared_ptr<WordTable> next = cache.replace(*table);
    EXPECT_NE(next, table);
    EXPECT_FALSE(next->is_full());
    EXPECT_EQ(cache.replace(*table), next) << "replaced once for all who find it full";
    EXPECT_EQ(cache.table(), next);
    EXPECT_GE(next->bits(), bits);
    bits = next->bits();
    table = next;
  }
  EXPECT_EQ(bits, 20);
}

TEST(WordTable, IsFullWhenLongWordsHaveTakenTheirRoom) {
  WordTable table(12);
  for (int i = 0; i < 3000 && !table.is_full(); ++i) {
    put(table, std::to_string(i) + std::string(200, 'x'), 0, {1});
  }
  EXPECT_TRUE(table.is_full());
}

TEST(WordTable, TakesWordsFromManyThreadsAndShowsOnlyWholeOnes) {
  WordTable table(15);
  const auto ids_of = [](int word) {
    return some_ids(static_cast<std::size_t>(word % 7), static_cast<std::uint32_t>(word));
  };
  const auto text_of = [](int word) {
    return std::to_string(word) + std::string(static_cast<std::size_t>(word % 30), '-');
  };
  std::atomic<int> wrong{0};
  const auto work = [&](int offset) {
    Ids found;
    for (int i = 0; i < 20000; ++i) {
      const int word = (i * 13 + offset * 1000) % 6000;
      if (find(table, text_of(word), 0, found)) {
        wrong += found != ids_of(word);
      } else {
        put(table, text_of(word), 0, ids_of(word));
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  }
  EXPECT_EQ(wrong, 0);
  Ids found;
  for (int word = 0; word < 6000; ++word) EXPECT_TRUE(find(table, text_of(word), 0, found));
}

}  // namespace
}  // namespace haul::tokenizers
