#pragma once

// What the user's terminal can do. Colours are off in a pipe, with NO_COLOR set, and with
// TERM=dumb; a progress bar is drawn only on a terminal. A pipe that a launcher passes on to its
// terminal as it comes is one, too.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "haul/bytes.h"

namespace haul::core {

enum class Style { kPlain, kBold, kDim, kRed, kGreen, kYellow, kBlue, kMagenta, kCyan };

bool stdout_is_terminal();
bool stderr_is_terminal();
// The variable that tells it of a pipe, and its value: the terminal has so many columns.
inline constexpr const char* kPassedOnVariable = "HAUL_TERMINAL";
std::string passed_on(int pipe, int columns);
// Columns of the terminal, 80 when unknown.
int terminal_width();
// Wraps text in the style's codes where the stream shows colours.
std::string styled_stdout(std::string_view text, Style style);
std::string styled_stderr(std::string_view text, Style style);

// A bar on stderr for work counted in bytes: label, share, rate, time left. Redrawn at most ten
// times a second; one final line. Silent when stderr is no terminal. May be advanced from several
// threads. The destructor erases an unfinished bar.
class Progress {
 public:
  Progress(std::string label, Bytes total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(Bytes bytes);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace haul::core
