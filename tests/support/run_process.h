#pragma once

// Runs a program to its end and keeps what it printed.

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace haul::test {

struct Finished {
  int exit_code = 0;  // 128 + the signal's number for a program that was killed
  std::string out;
  std::string err;
};

// Starts a program with these as its stdin, stdout and stderr; below 0: the test's own.
// `environment` is added to the test's own.
inline pid_t start_process(std::vector<std::string> arguments,
                           const std::map<std::string, std::string>& environment,
                           const std::array<int, 3>& standard) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (int number = 0; number < 3; ++number) {
    const int given = standard[static_cast<std::size_t>(number)];
    if (given >= 0) ::dup2(given, number);
  }
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

inline Finished run_process(std::vector<std::string> arguments,
                            const std::map<std::string, std::string>& environment = {}) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2");
  }
  const pid_t child = start_process(std::move(arguments), environment, {-1, out[1], err[1]});
  ::close(out[1]);
  ::close(err[1]);
  Finished result;
  std::array<pollfd, 2> fds{{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    ::poll(fds.data(), fds.size(), -1);
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      std::array<char, 65536> chunk;
      const ssize_t count = ::read(fds[i].fd, chunk.data(), chunk.size());
      if (count > 0) {
        (i == 0 ? result.out : result.err).append(chunk.data(), static_cast<std::size_t>(count));
      } else {
        ::close(fds[i].fd);
        fds[i].fd = -1;
      }
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// The command itself: run_haul({"estimate", path, "--json"}).
inline Finished run_haul(std::vector<std::string> arguments,
                         const std::map<std::string, std::string>& environment = {}) {
  arguments.insert(arguments.begin(), HAUL_COMMAND);
  return run_process(std::move(arguments), environment);
}

}  // namespace haul::test
