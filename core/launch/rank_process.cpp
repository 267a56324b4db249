#include "core/launch/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "haul/error.h"

namespace haul::core {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

struct Cpus {
  std::vector<unsigned long> bits;

  explicit Cpus(const std::vector<int>& cpus) {
    constexpr int kBits = static_cast<int>(sizeof(unsigned long) * 8);
    for (const int cpu : cpus) {
      const auto word = static_cast<std::size_t>(cpu / kBits);
      if (bits.size() <= word) bits.resize(word + 1);
      bits[word] |= 1UL << (cpu % kBits);
    }
  }
};

// In the child. Returns only when it cannot become the program, with errno.
void become(const ProcessStart& start, const std::vector<char*>& argv,
            const std::vector<char*>& envp, const Cpus& cpus, pid_t parent) {
  if (start.own_group) ::setpgid(0, 0);
  if (start.guard != nullptr) start.guard->add(::getpid());
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // died before it could be asked to
  if (!cpus.bits.empty()) {
    ::sched_setaffinity(0, cpus.bits.size() * sizeof(unsigned long),
                        reinterpret_cast<const cpu_set_t*>(cpus.bits.data()));
  }
  // Each stays open in the program, also where it has its number already.
  for (const auto& [from, to] : {std::pair{start.in, 0}, {start.out, 1}, {start.err, 2}}) {
    if (from != to && ::dup2(from, to) < 0) return;
  }
  ::sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr);
  ::execvpe(argv[0], argv.data(), envp.data());
}

[[noreturn]] void fail_to_start(const std::string& program, int code) {
  auto kind = ErrorKind::kResource;
  if (code == ENOENT || code == ENOTDIR) kind = ErrorKind::kNotFound;
  if (code == EACCES || code == ENOEXEC) kind = ErrorKind::kUnsupported;
  std::string hint;
  if (code == ENOENT && program.find('/') == program.npos) {
    hint = "it is not in PATH; for one in this folder write ./" + program;
  }
  throw Error(kind, fmt::format("cannot start {}: {}", quote(program), std::strerror(code)), hint);
}

std::vector<pid_t> children() {
  std::ifstream list(fmt::format("/proc/self/task/{}/children", ::getpid()));
  std::vector<pid_t> result;
  for (pid_t pid = 0; list >> pid;) result.push_back(pid);
  return result;
}

}  // namespace

pid_t start_process(const ProcessStart& start) {
  const std::vector<char*> argv = pointers(start.command);
  const std::vector<char*> envp = pointers(start.environment);
  const Cpus cpus(start.cpus);
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) fail_to_start(start.command.front(), errno);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    become(start, argv, envp, cpus, parent);
    const int code = errno;
    [[maybe_unused]] const ssize_t told = ::write(report[1], &code, sizeof code);
    ::_exit(127);
  }
  int code = child < 0 ? errno : 0;
  ::close(report[1]);
  if (child > 0) {
    ssize_t count = 0;
    do {
      count = ::read(report[0], &code, sizeof code);
    } while (count < 0 && errno == EINTR);
    if (count != sizeof code) code = 0;  // closed by the exec
    if (code != 0) ::waitpid(child, nullptr, 0);
  }
  ::close(report[0]);
  if (code != 0) fail_to_start(start.command.front(), code);
  return child;
}

std::string ProcessEnd::text() const {
  if (signal == 0) return fmt::format("exit code {}", exit_code);
  return fmt::format("signal {} ({})", signal, ::strsignal(signal));
}

Guard::Guard() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorKind::kResource, fmt::format("no pipe: {}", std::strerror(errno)));
  }
  pid_ = ::fork();
  if (pid_ < 0) {
    throw Error(ErrorKind::kResource, fmt::format("cannot fork: {}", std::strerror(errno)));
  }
  pipe_ = ends[1];
  if (pid_ > 0) {
    ::close(ends[0]);
    return;
  }
  // Out of reach of the terminal's signals, and nobody waits for what it holds open.
  ::setsid();
  ::dup2(ends[0], 0);
  ::close_range(1, ~0U, 0);
  std::vector<pid_t> groups;
  pid_t group = 0;
  while (::read(0, &group, sizeof group) == sizeof group) {
    if (group == 0) {
      groups.clear();
    } else {
      groups.push_back(group);
    }
  }
  for (const pid_t each : groups) ::kill(-each, SIGKILL);
  ::_exit(0);
}

Guard::~Guard() {
  forget();
  ::close(pipe_);
  ::waitpid(pid_, nullptr, 0);
}

void Guard::add(pid_t group) const {
  [[maybe_unused]] const ssize_t told = ::write(pipe_, &group, sizeof group);
}

void Guard::forget() const {
  add(0);
}

void collect_orphans(const std::vector<pid_t>& kept) {
  for (const pid_t pid : children()) {
    if (std::find(kept.begin(), kept.end(), pid) == kept.end()) ::waitpid(pid, nullptr, WNOHANG);
  }
}

void end_descendants(pid_t spared) {
  for (;;) {
    std::vector<pid_t> left = children();
    left.erase(std::remove(left.begin(), left.end(), spared), left.end());
    if (left.empty()) return;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    for (const pid_t pid : left) ::waitpid(pid, nullptr, 0);
  }
}

}  // namespace haul::core
