#include "core/base/terminal.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace haul::core {
namespace {

using Clock = std::chrono::steady_clock;

bool colours_allowed() {
  const char* term = std::getenv("TERM");
  return std::getenv("NO_COLOR") == nullptr &&
         (term == nullptr || std::string_view(term) != "dumb");
}

const char* code(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kRed:
      return "\033[31m";
    case Style::kGreen:
      return "\033[32m";
    case Style::kYellow:
      return "\033[33m";
    case Style::kBlue:
      return "\033[34m";
    case Style::kMagenta:
      return "\033[35m";
    case Style::kCyan:
      return "\033[36m";
  }
  return "";
}

std::string styled(std::string_view text, Style style, bool terminal) {
  if (!terminal || style == Style::kPlain || !colours_allowed()) return std::string(text);
  return fmt::format("{}{}\033[0m", code(style), text);
}

// Of the terminal that this very stderr is passed on to; 0: there is none. Another's stderr does
// not match, though the variable is inherited.
int passed_on_columns() {
  const char* const told = std::getenv(kPassedOnVariable);
  const int columns = told == nullptr ? 0 : std::atoi(told);
  return columns > 0 && passed_on(STDERR_FILENO, columns) == told ? columns : 0;
}

std::string bar(double share, int width) {
  const int filled = static_cast<int>(share * width);
  std::string result;
  for (int i = 0; i < width; ++i) result += i < filled ? "█" : "░";
  return result;
}

}  // namespace

bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1 || passed_on_columns() > 0;
}

std::string passed_on(int pipe, int columns) {
  struct stat status {};
  ::fstat(pipe, &status);
  return fmt::format("{}:{}:{}", columns, status.st_dev, status.st_ino);
}

int terminal_width() {
  winsize size{};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  return passed_on_columns() > 0 ? passed_on_columns() : 80;
}

std::string styled_stdout(std::string_view text, Style style) {
  return styled(text, style, stdout_is_terminal());
}

std::string styled_stderr(std::string_view text, Style style) {
  return styled(text, style, stderr_is_terminal());
}

struct Progress::State {
  std::string label;
  Bytes total = 0;
  std::atomic<Bytes> done{0};
  Clock::time_point start = Clock::now();
  std::mutex mutex;
  Clock::time_point last_draw{};
  bool finished = false;

  void draw(Clock::time_point now) {
    const Bytes bytes = done;
    const double seconds = std::chrono::duration<double>(now - start).count();
    const double rate = seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
    const double share =
        total == 0 ? 1 : std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total));
    const double left = rate > 0 && total > bytes ? static_cast<double>(total - bytes) / rate : 0;
    fmt::print(stderr, "\r\033[K{} {} {:3.0f}% {} of {} {}/s {:.0f}s", label, bar(share, 24),
               share * 100, format_bytes(bytes), format_bytes(total),
               format_bytes(static_cast<Bytes>(rate)), left);
    std::fflush(stderr);
  }
};

Progress::Progress(std::string label, Bytes total) {
  if (!stderr_is_terminal()) return;
  state_ = std::make_unique<State>();
  state_->label = std::move(label);
  state_->total = total;
}

Progress::~Progress() {
  if (!state_ || state_->finished) return;
  fmt::print(stderr, "\r\033[K");
}

void Progress::advance(Bytes bytes) {
  if (!state_) return;
  state_->done += bytes;
  const std::unique_lock lock(state_->mutex, std::try_to_lock);
  const auto now = Clock::now();
  if (!lock || now - state_->last_draw < std::chrono::milliseconds(100)) return;
  state_->last_draw = now;
  state_->draw(now);
}

void Progress::finish() {
  if (!state_ || state_->finished) return;
  const std::scoped_lock lock(state_->mutex);
  state_->finished = true;
  state_->draw(Clock::now());
  fmt::print(stderr, "\n");
}

}  // namespace haul::core
