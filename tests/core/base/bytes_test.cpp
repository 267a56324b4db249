#include "haul/bytes.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul {
namespace {

using testing::HasSubstr;

TEST(ParseBytes, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("100MB"), 100'000'000u);
  EXPECT_EQ(parse_bytes("2GiB"), 2'147'483'648u);
  EXPECT_EQ(parse_bytes("512KiB"), 524'288u);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000u);
  EXPECT_EQ(parse_bytes("500"), 500u);
  EXPECT_EQ(parse_bytes("1gib"), 1'073'741'824u);
  EXPECT_EQ(parse_bytes("30GIB"), 30 * kGiB);
  EXPECT_EQ(parse_bytes("0GiB"), 0u);
}

TEST(ParseBytes, ReadsALowerCaseDecimalUnitAsBits) {
  EXPECT_EQ(parse_bytes("1Gb"), 125'000'000u);
  EXPECT_EQ(parse_bytes("1gb"), 125'000'000u);
}

TEST(ParseBytes, RefusesWhatIsNoSizeAndNamesIt) {
  for (const char* text :
       {"5MBB", "5k0MB", "-1GB", "", "GB", "1.2.3GB", "1e3MB", "0x10", "nan", "1.5"}) {
    test::expect_error(ErrorKind::kUsage, HasSubstr(text), [&] { parse_bytes(text); });
  }
  test::expect_error(ErrorKind::kUsage, HasSubstr("too large"), [] { parse_bytes("99999999TB"); });
}

TEST(FormatBytes, PrintsAsAcceleratePrints) {
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(433'249'280), "413.18 MB");
  EXPECT_EQ(format_bytes(9'437'184), "9.0 MB");
  EXPECT_EQ(format_bytes(102'441'032), "97.7 MB");
  EXPECT_EQ(format_bytes(3'238'068'736), "3.02 GB");
}

TEST(FormatBytes, KeepsAFraction) {
  EXPECT_EQ(format_fractional_bytes(29.5), "29.5 bytes");
  EXPECT_EQ(format_fractional_bytes(59), "59.0 bytes");
  EXPECT_EQ(format_fractional_bytes(1029.125), "1.01 KB");
}

}  // namespace
}  // namespace haul
