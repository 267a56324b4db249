#include "core/launch/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <limits.h>

namespace haul::core {
namespace {

constexpr std::size_t kTail = 4096;
constexpr int kTailLines = 20;
constexpr std::size_t kMaxLine = 64 * 1024;  // then it is shown before its end

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // a full disk ends the log, not the job
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

void Sink::add(std::string_view text) {
  if (closed_) return;
  text_ += text;
  write_some();
}

void Sink::write_some() {
  while (!text_.empty()) {
    pollfd room{descriptor_, POLLOUT, 0};
    if (::poll(&room, 1, 0) != 1) return;
    // A pipe that has room takes this much without blocking.
    const std::size_t size = std::min<std::size_t>(text_.size(), PIPE_BUF);
    const ssize_t count = ::write(descriptor_, text_.data(), size);
    if (count > 0) {
      text_.erase(0, static_cast<std::size_t>(count));
    } else if (errno != EINTR && errno != EAGAIN) {
      closed_ = true;
      text_.clear();
    }
  }
}

RankStream::RankStream(int pipe, int log, Sink* sink, std::string prefix)
    : pipe_(pipe), log_(log), sink_(sink), prefix_(std::move(prefix)) {
  ::fcntl(pipe_, F_SETFL, ::fcntl(pipe_, F_GETFL) | O_NONBLOCK);
}

RankStream::RankStream(RankStream&& other) noexcept
    : pipe_(std::exchange(other.pipe_, -1)),
      log_(std::exchange(other.log_, -1)),
      sink_(std::exchange(other.sink_, nullptr)),
      prefix_(std::move(other.prefix_)),
      line_(std::move(other.line_)),
      tail_(std::move(other.tail_)) {}

RankStream::~RankStream() {
  if (pipe_ >= 0) ::close(pipe_);
  if (log_ >= 0) ::close(log_);
}

bool RankStream::read_some() {
  std::array<char, 64 * 1024> chunk;
  ssize_t count = 0;
  do {
    count = ::read(pipe_, chunk.data(), chunk.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) return false;
  if (count <= 0) {
    end();
    return false;
  }
  const std::string_view text(chunk.data(), static_cast<std::size_t>(count));
  if (log_ >= 0) write_all(log_, text);
  tail_ += text;
  if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
  if (sink_ != nullptr) show(text);
  // Its reader is gone: let the rank meet what it would have met without the launcher.
  if (sink_ != nullptr && sink_->closed() && log_ < 0) end();
  return pipe_ >= 0;
}

void RankStream::show(std::string_view text) {
  if (prefix_.empty()) {
    sink_->add(text);
    return;
  }
  std::string lines;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    lines += prefix_ + line_;
    lines += text.substr(0, end + 1);
    line_.clear();
    text.remove_prefix(end + 1);
  }
  line_ += text;
  if (line_.size() > kMaxLine) lines += prefix_ + std::exchange(line_, {}) + "\n";
  sink_->add(lines);
}

void RankStream::end() {
  if (sink_ != nullptr && !line_.empty()) {
    sink_->add(prefix_ + std::exchange(line_, {}) + "\n");
  }
  ::close(std::exchange(pipe_, -1));
}

std::string last_lines(std::string_view text) {
  if (text.size() > kTail) text.remove_prefix(text.size() - kTail);
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::size_t begin = text.size();
  for (int lines = 0; lines < kTailLines && begin != 0 && begin != text.npos; ++lines) {
    begin = text.rfind('\n', begin - 1);
  }
  if (begin != text.npos && begin != 0) text.remove_prefix(begin + 1);
  return std::string(text);
}

std::string last_lines_of_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const off_t size = ::lseek(file, 0, SEEK_END);
  std::array<char, kTail> text;
  const ssize_t count =
      ::pread(file, text.data(), text.size(), std::max<off_t>(0, size - static_cast<off_t>(kTail)));
  ::close(file);
  return last_lines({text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, count))});
}

}  // namespace haul::core
