#include "cli/torch/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "cli/torch/interrupt.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKeptErrors = 4096;
constexpr int kLookForInterrupt = 100;  // milliseconds

struct Pipe {
  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorKind::kResource,
                  fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_writer();
    ::close(ends[0]);
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

// Between fork and exec nothing may be allocated.
[[noreturn]] void become(char* const* argv, const char* group, const Pipe& out, const Pipe& err) {
  if (group != nullptr) {
    const int file = ::open(group, O_WRONLY | O_CLOEXEC);
    if (file < 0 || ::write(file, "0", 1) != 1) ::_exit(126);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // not to go on without the one that measures
  ::dup2(out.ends[1], STDOUT_FILENO);
  ::dup2(err.ends[1], STDERR_FILENO);
  ::execvp(argv[0], argv);
  ::_exit(127);
}

// False at the end of what it writes.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 65536> chunk;
  const ssize_t count = ::read(descriptor, chunk.data(), chunk.size());
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) return false;
  text.append(chunk.data(), static_cast<std::size_t>(count));
  return true;
}

}  // namespace

MemoryGroup::MemoryGroup(Bytes limit) {
  const fs::path old = "/sys/fs/cgroup/memory";
  const bool is_old = fs::exists(old);
  folder_ = (is_old ? old : fs::path("/sys/fs/cgroup")) / fmt::format("haul-bench-{}", ::getpid());
  std::error_code error;
  fs::create_directory(folder_, error);
  const fs::path file = folder_ / (is_old ? "memory.limit_in_bytes" : "memory.max");
  std::ofstream stream(file);
  stream << limit << std::flush;
  std::ofstream(folder_ / "memory.swap.max") << 0;  // where there is swap
  if (error || !stream) {
    fs::remove(folder_, error);
    throw Error(ErrorKind::kResource, fmt::format("{}: cannot be set", file.string()),
                "memory is limited by a cgroup, which root may make");
  }
}

MemoryGroup::~MemoryGroup() {
  std::error_code error;
  fs::remove(folder_, error);
}

ChildEnd run_child(std::vector<std::string> command, const MemoryGroup* group) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string members = group == nullptr ? "" : (group->folder() / "cgroup.procs").string();
  Pipe out;
  Pipe err;
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child < 0) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: cannot start: {}", command.front(), std::strerror(errno)));
  }
  if (child == 0) become(argv.data(), group == nullptr ? nullptr : members.c_str(), out, err);
  out.close_writer();
  err.close_writer();
  ChildEnd end;
  std::array<pollfd, 2> fds{{{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    ::poll(fds.data(), fds.size(), kLookForInterrupt);
    if (interrupted()) ::kill(child, SIGKILL);
    if (fds[0].fd >= 0 && fds[0].revents != 0) {
      if (end.out.empty()) {
        end.first_output =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      }
      if (!read_some(fds[0].fd, end.out)) fds[0].fd = -1;
    }
    if (fds[1].fd >= 0 && fds[1].revents != 0) {
      if (!read_some(fds[1].fd, end.err)) fds[1].fd = -1;
      if (end.err.size() > kKeptErrors) end.err.erase(0, end.err.size() - kKeptErrors);
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (end.exit_code == 127 && end.out.empty()) {
    throw Error(ErrorKind::kResource, fmt::format("{}: cannot start", command.front()));
  }
  return end;
}

}  // namespace haul::cli
