#include "core/hub/answers.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

const std::string kCommit(40, 'c');

TEST(ModelInfo, ReadsSizesAndHashesOfBothKindsOfFiles) {
  const std::string sha(64, 'a');
  const std::string blob(40, 'b');
  const ModelInfo info =
      parse_model_info(R"({"sha": ")" + kCommit + R"(", "library_name": "timm", "siblings": [
        {"rfilename": "small", "size": 3, "blobId": ")" +
                           blob + R"("},
        {"rfilename": "sub/large", "size": 9, "blobId": "x", "lfs": {"sha256": ")" +
                           sha + R"(", "size": 5}}, {"rfilename": "bare"}]})",
                       "listing");
  EXPECT_EQ(info.commit, kCommit);
  EXPECT_EQ(info.library, "timm");
  EXPECT_EQ(info.find("small")->etag, blob);
  EXPECT_EQ(info.find("sub/large")->etag, sha);
  EXPECT_EQ(info.find("sub/large")->size, 5u);
  EXPECT_TRUE(info.find("bare")->etag.empty());
  EXPECT_FALSE(info.find("bare")->size.has_value());
  EXPECT_EQ(info.find("absent"), nullptr);
}

TEST(ModelInfo, RefusesAFileListedTwiceAndHashesThatAreNone) {
  const std::string head = R"({"sha": ")" + kCommit + R"(", "siblings": [)";
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("lists 'a' twice"), [&] {
    parse_model_info(head + R"({"rfilename": "a"}, {"rfilename": "a"}]})", "x");
  });
  test::expect_error(ErrorKind::kCorrupt, HasSubstr("no file"),
                     [&] { parse_model_info(head + "7]}", "x"); });
  const ModelInfo info =
      parse_model_info(head + R"({"rfilename": "a", "blobId": "../x", "size": -1}]})", "x");
  EXPECT_TRUE(info.files[0].etag.empty());
  EXPECT_FALSE(info.files[0].size.has_value());
}

TEST(ContentRange, ReadsOnlyWhatMakesSense) {
  EXPECT_EQ(parse_content_range("bytes 5-9/10")->first, 5u);
  EXPECT_EQ(parse_content_range("bytes 5-9/10")->total, 10u);
  EXPECT_FALSE(parse_content_range("bytes 0-0/*")->total.has_value());
  for (const char* text : {"", "bytes", "bytes */10", "bytes 9-5/10", "bytes 0-10/10", "bytes -5/9",
                           "items 0-1/2", "bytes 0-1", "bytes 0-99999999999999999999/*"}) {
    EXPECT_FALSE(parse_content_range(text).has_value()) << text;
  }
}

TEST(Headers, AreReadWithoutRegardToCaseAndBounded) {
  HttpAnswer answer;
  EXPECT_TRUE(take_header_line("HTTP/1.1 200 OK\r\n", &answer));
  EXPECT_TRUE(take_header_line("Content-LENGTH:  12 \r\n", &answer));
  EXPECT_TRUE(take_header_line("no colon\r\n", &answer));
  EXPECT_TRUE(take_header_line("Empty:\r\n", &answer));
  EXPECT_EQ(length_header(answer, "content-length"), 12u);
  EXPECT_EQ(*answer.header("empty"), "");
  EXPECT_TRUE(take_header_line("HTTP/1.1 200 OK\r\n", &answer));
  EXPECT_EQ(answer.header("content-length"), nullptr) << "an interim answer's are forgotten";
  bool taken = true;
  for (int i = 0; i < 1000 && taken; ++i) taken = take_header_line("A: b", &answer);
  EXPECT_FALSE(taken);
}

}  // namespace
}  // namespace haul::core
