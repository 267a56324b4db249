#pragma once

// A program that is watched and spoken to while it runs.

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/run_process.h"

namespace haul::test {

class LiveProcess {
 public:
  explicit LiveProcess(std::vector<std::string> arguments,
                       const std::map<std::string, std::string>& environment = {}) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    for (auto* ends : {&in, &out, &err}) {
      if (::pipe2(ends->data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    }
    pid_ = start_process(std::move(arguments), environment, {in[0], out[1], err[1]});
    ::close(in[0]);
    ::close(out[1]);
    ::close(err[1]);
    in_ = in[1];
    out_ = out[0];
    err_ = err[0];
  }
  LiveProcess(const LiveProcess&) = delete;
  LiveProcess& operator=(const LiveProcess&) = delete;
  ~LiveProcess() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    for (const int descriptor : {in_, out_, err_}) {
      if (descriptor >= 0) ::close(descriptor);
    }
  }

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }

  void write(std::string_view text) const {
    if (::write(in_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("write");
    }
  }
  void close_input() {
    ::close(in_);
    in_ = -1;
  }

  // The next line of stdout; throws when none has come within `limit`, or none will.
  std::string line(std::chrono::seconds limit = std::chrono::seconds(60)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (std::size_t stop = shown_.find('\n'); stop == shown_.npos; stop = shown_.find('\n')) {
      if (!read_some(end)) throw std::runtime_error("no line; stderr: " + err_text_);
    }
    const std::size_t stop = shown_.find('\n');
    std::string result = shown_.substr(0, stop);
    shown_.erase(0, stop + 1);
    return result;
  }

  // Its end, and that of all who hold its stdout and stderr; what was shown since the last line.
  Finished wait(std::chrono::seconds limit = std::chrono::seconds(60)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (out_ >= 0 || err_ >= 0) {
      if (!read_some(end)) throw std::runtime_error("does not end; stderr: " + err_text_);
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), shown_, err_text_};
  }

 private:
  bool read_some(std::chrono::steady_clock::time_point end) {
    if (out_ < 0 && err_ < 0) return false;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    std::array<pollfd, 2> wanted{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
    if (left.count() <= 0 ||
        ::poll(wanted.data(), wanted.size(), static_cast<int>(left.count())) <= 0) {
      return false;
    }
    for (auto [descriptor, text] : {std::pair{&out_, &shown_}, {&err_, &err_text_}}) {
      const short came = wanted[descriptor == &out_ ? 0 : 1].revents;
      if (*descriptor < 0 || came == 0) continue;
      std::array<char, 4096> chunk;
      const ssize_t count = ::read(*descriptor, chunk.data(), chunk.size());
      if (count > 0) {
        text->append(chunk.data(), static_cast<std::size_t>(count));
      } else {
        ::close(*descriptor);
        *descriptor = -1;
      }
    }
    return true;
  }

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::string shown_;
  std::string err_text_;
};

}  // namespace haul::test
