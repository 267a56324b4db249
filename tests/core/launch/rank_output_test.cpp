#include "core/launch/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

struct Pipe {
  std::array<int, 2> ends{};

  Pipe() { EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0); }
  void write(const std::string& text) const {
    EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void close_writer() { ::close(ends[1]); }
  std::string read_all() const {
    std::string result;
    std::array<char, 4096> chunk;
    for (ssize_t n = 0; (n = ::read(ends[0], chunk.data(), chunk.size())) > 0;) {
      result.append(chunk.data(), static_cast<std::size_t>(n));
    }
    return result;
  }
};

TEST(RankStream, PrefixesWholeLinesHoweverTheyArrive) {
  Pipe from;
  const Pipe to;
  Sink sink(to.ends[1]);
  RankStream stream(from.ends[0], -1, &sink, "[rank 1] ");
  from.write("one\ntw");
  EXPECT_TRUE(stream.read_some());
  EXPECT_EQ(to.read_all(), "[rank 1] one\n");
  from.write("o\nthree");
  EXPECT_TRUE(stream.read_some());
  EXPECT_EQ(to.read_all(), "[rank 1] two\n");
  from.close_writer();
  EXPECT_FALSE(stream.read_some());
  EXPECT_EQ(stream.descriptor(), -1);
  EXPECT_EQ(to.read_all(), "[rank 1] three\n");
  EXPECT_EQ(stream.tail(), "one\ntwo\nthree");
}

TEST(RankStream, PassesBytesOnAsTheyAreWithoutAPrefix) {
  const Pipe from;
  const Pipe to;
  Sink sink(to.ends[1]);
  RankStream stream(from.ends[0], -1, &sink, "");
  from.write("50 %\r60");
  EXPECT_TRUE(stream.read_some());
  EXPECT_EQ(to.read_all(), "50 %\r60");
}

TEST(RankStream, WritesTheLogAsWell) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "log";
  const Pipe from;
  const Pipe to;
  Sink sink(to.ends[1]);
  RankStream stream(from.ends[0], ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644), &sink,
                    "[rank 0] ");
  from.write("a\nb\n");
  EXPECT_TRUE(stream.read_some());
  EXPECT_EQ(to.read_all(), "[rank 0] a\n[rank 0] b\n");
  EXPECT_EQ(last_lines_of_file(path), "a\nb");
}

TEST(Sink, KeepsWhatItsReaderDoesNotTakeYetInsteadOfBlocking) {
  const Pipe to;
  Sink sink(to.ends[1]);
  const std::string much(1 << 20, 'x');
  sink.add(much);
  EXPECT_TRUE(sink.pending());
  std::string got;
  while (sink.pending()) {
    got += to.read_all();
    sink.write_some();
  }
  got += to.read_all();
  EXPECT_EQ(got, much);
}

TEST(LastLines, AreAtMostTwentyAndWhole) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "\n";
  const std::string last = last_lines(text);
  EXPECT_TRUE(last.starts_with("80\n")) << last;
  EXPECT_TRUE(last.ends_with("\n99")) << last;
  EXPECT_EQ(last_lines("\n\n"), "");
  EXPECT_EQ(last_lines("one"), "one");
  EXPECT_EQ(last_lines("one\ntwo\n\n"), "one\ntwo");
  EXPECT_LE(last_lines(std::string(100000, 'x')).size(), 4096U);
}

}  // namespace
}  // namespace haul::core
