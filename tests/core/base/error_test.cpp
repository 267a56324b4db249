#include "haul/error.h"

#include <gtest/gtest.h>

namespace haul {
namespace {

TEST(Error, IsOneLineWhateverTheNamesInIt) {
  Error error(ErrorKind::kCorrupt, std::string("tensor 'a\0b\n\x1b[31m'", 18));
  error.add_context("a\tfile");
  EXPECT_STREQ(error.what(), "a\\x09file: tensor 'a\\x00b\\x0a\\x1b[31m'");
}

TEST(Error, KeepsTextBeyondAscii) {
  EXPECT_STREQ(Error(ErrorKind::kCorrupt, "größe").what(), "größe");
}

}  // namespace
}  // namespace haul
