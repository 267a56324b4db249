#pragma once

// What the ranks print on its way through the launcher: to the terminal with or without the rank
// before each line, to a log, and the last lines kept for the report of a failure. One thread.

#include <cstdio>
#include <string>
#include <string_view>

namespace haul::core {

// The launcher's own stdout or stderr. Never blocks: what the reader does not take yet is kept, and
// `pending` asks the caller to wait for room before it brings more.
class Sink {
 public:
  explicit Sink(int descriptor) : descriptor_(descriptor) {}

  int descriptor() const { return descriptor_; }
  bool pending() const { return !text_.empty(); }
  bool closed() const { return closed_; }  // nobody reads it any more
  void add(std::string_view text);
  void write_some();  // where the descriptor takes it

 private:
  int descriptor_;
  std::string text_;
  bool closed_ = false;
};

// One pipe from one rank.
class RankStream {
 public:
  // Owns `pipe` and `log`; -1 and null where there is no log or nothing is shown.
  RankStream(int pipe, int log, Sink* sink, std::string prefix);
  RankStream(RankStream&& other) noexcept;
  RankStream& operator=(RankStream&&) = delete;
  RankStream(const RankStream&) = delete;
  ~RankStream();

  int descriptor() const { return pipe_; }  // -1 after its end
  bool waits() const { return sink_ != nullptr && sink_->pending(); }
  // Reads what is there. False when there is nothing now.
  bool read_some();
  const std::string& tail() const { return tail_; }

 private:
  void show(std::string_view text);
  void end();

  int pipe_;
  int log_;
  Sink* sink_;
  std::string prefix_;
  std::string line_;  // begun, where lines are prefixed
  std::string tail_;
};

// The last lines of a text or of a file, at most 20 and 4 KiB.
std::string last_lines(std::string_view text);
std::string last_lines_of_file(const std::string& path);

}  // namespace haul::core
