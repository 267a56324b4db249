#include "core/launch/attempt.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/base/terminal.h"
#include "haul/error.h"

extern char** environ;

namespace haul::core {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The launcher's own, with `changes` over it.
std::vector<std::string> environment_with(const EnvironmentVariables& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(),
                                     [&](const auto& change) { return change.first == name; });
    if (!changed) result.emplace_back(text);
  }
  for (const auto& [name, value] : changes) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::string indented(const std::string& lines) {
  std::string result = "  | ";
  for (const char c : lines) {
    result += c;
    if (c == '\n') result += "  | ";
  }
  return result;
}

}  // namespace

void LaunchContext::say(const std::string& message) {
  err.add(fmt::format("haul: {}\n", message));
}

std::string Attempt::Rank::name() const {
  return fmt::format("rank {} (pid {})", number, pid);
}

Attempt::Attempt(LaunchContext& context, int number, int port)
    : context_(context), number_(number), port_(port) {}

Attempt::~Attempt() {
  if (!finished_) finish();
}

Attempt::End Attempt::run() {
  const int count = context_.plan.local_world;
  // One rank alone may use the terminal: it stays in the group that the terminal listens to.
  own_groups_ = !(count == 1 && ::isatty(STDIN_FILENO) != 0);
  ranks_.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) start(i);
  hear_machines();  // one may have failed already
  while (living() > 0) wait();
  finish();
  if (failed_ == nullptr && !failed_elsewhere_ && signal_ == 0) {
    signal_ = context_.machines.wait_for_the_others(&failed_elsewhere_);
    if (failed_elsewhere_) context_.say(failed_elsewhere_->text);
  }
  End end;
  end.signal = signal_;
  if (failed_ != nullptr) {
    end.exit_code = failed_->end->shell_code();
    end.restarts = true;
    report();
  } else if (failed_elsewhere_) {
    end.exit_code = failed_elsewhere_->exit_code;
    end.restarts = failed_elsewhere_->restarts;
  }
  return end;
}

int Attempt::open_log(int rank, const char* name, std::string* path) const {
  const fs::path folder = context_.logs / fmt::format("attempt_{}", number_) / std::to_string(rank);
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  *path = folder / name;
  const int log = ::open(path->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: cannot write: {}", *path, std::strerror(errno)));
  }
  return log;
}

// What the rank gets as its stdout or stderr.
int Attempt::output(int standard, bool tee, bool pipe, Rank& rank) {
  const bool error = standard == STDERR_FILENO;
  const bool logged = !context_.logs.empty();
  if (!logged && !pipe) return standard;
  std::string path;
  const int log = logged ? open_log(rank.number, error ? "stderr.log" : "stdout.log", &path) : -1;
  if (logged && !tee) {
    if (error) rank.error_log = path;
    to_close_.push_back(log);
    return log;
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorKind::kResource,
                fmt::format("no pipe for rank {}: {}", rank.number, std::strerror(errno)));
  }
  to_close_.push_back(ends[1]);
  const std::string prefix =
      context_.options.prefix ? fmt::format("[rank {}] ", rank.number) : std::string();
  streams_.emplace_back(ends[0], log, error ? &context_.err : &context_.out, prefix);
  if (error) rank.error_stream = streams_.size();
  return ends[1];
}

void Attempt::start(int local_rank) {
  const LaunchPlan& plan = context_.plan;
  const LaunchOptions& options = context_.options;
  Rank rank;
  rank.number = plan.machine_rank * plan.local_world + local_rank;
  EnvironmentVariables changes = plan.variables;
  for (auto& change : rank_variables(plan, local_rank, port_, number_, options.max_restarts)) {
    changes.push_back(std::move(change));
  }
  ProcessStart process;
  process.command = plan.command;
  process.own_group = own_groups_;
  if (own_groups_) process.guard = &context_.guard;
  process.signal_mask = context_.signals.mask_before();
  if (!context_.cores.empty()) process.cpus = context_.cores[static_cast<std::size_t>(local_rank)];
  if (local_rank > 0 || (own_groups_ && ::isatty(STDIN_FILENO) != 0)) {
    process.in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    to_close_.push_back(process.in);
  }
  process.out = output(STDOUT_FILENO, options.tee_stdout, options.prefix, rank);
  // Kept for the report of a failure, unless one rank alone has just shown them.
  process.err =
      output(STDERR_FILENO, options.tee_stderr, options.prefix || plan.local_world > 1, rank);
  // The bars of one rank alone can be drawn.
  if (rank.number == 0 && rank.error_stream > 0 && !options.prefix &&
      ::isatty(STDERR_FILENO) != 0) {
    changes.emplace_back(kPassedOnVariable, passed_on(process.err, terminal_width()));
  }
  process.environment = environment_with(changes);
  rank.pid = start_process(process);
  for (const int descriptor : to_close_) ::close(descriptor);
  to_close_.clear();
  rank.descriptor = static_cast<int>(::syscall(SYS_pidfd_open, rank.pid, 0));
  ranks_.push_back(std::move(rank));
  if (ranks_.back().descriptor < 0) {
    throw Error(ErrorKind::kResource, fmt::format("pidfd_open: {}", std::strerror(errno)));
  }
}

std::size_t Attempt::living() const {
  return static_cast<std::size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.end; }));
}

void Attempt::wait() {
  int timeout = -1;
  if (stopping_ && !killed_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    timeout = static_cast<int>(std::max<std::chrono::milliseconds::rep>(0, left.count()));
  }
  std::vector<pollfd> wanted{{context_.signals.descriptor(), POLLIN, 0}};
  for (const Rank& rank : ranks_) wanted.push_back({rank.descriptor, POLLIN, 0});
  for (const RankStream& stream : streams_) {
    wanted.push_back({stream.waits() ? -1 : stream.descriptor(), POLLIN, 0});
  }
  for (const Sink* sink : {&context_.out, &context_.err}) {
    wanted.push_back({sink->pending() ? sink->descriptor() : -1, POLLOUT, 0});
  }
  for (const int machine : context_.machines.descriptors()) wanted.push_back({machine, POLLIN, 0});
  if (::poll(wanted.data(), wanted.size(), timeout) < 0 && errno != EINTR) {
    throw Error(ErrorKind::kInternal, fmt::format("poll: {}", std::strerror(errno)));
  }
  const auto* event = wanted.data();
  const auto came = [&] { return (event++)->revents != 0; };
  if (came()) {
    while (const auto signal = context_.signals.next()) on_signal(*signal);
  }
  for (Rank& rank : ranks_) {
    if (came()) collect(rank);
  }
  for (RankStream& stream : streams_) {
    if (came()) stream.read_some();
  }
  for (Sink* sink : {&context_.out, &context_.err}) {
    if (came()) sink->write_some();
  }
  choose_failure();
  hear_machines();
  if (stopping_ && !killed_ && Clock::now() >= deadline_) {
    kill_all("did not end in time");
  }
}

// Learns how a rank ended and leaves it where it is: while it is there, nobody else can get its
// number, and its process group can be reached.
void Attempt::collect(Rank& rank) {
  siginfo_t info{};
  if (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(rank.descriptor), &info,
               WEXITED | WNOWAIT) != 0) {
    return;
  }
  ProcessEnd end;
  (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
  rank.end = end;
  ::close(rank.descriptor);
  rank.descriptor = -1;
}

// Of those that were found to have failed at once, one that a signal ended is the likelier cause.
void Attempt::choose_failure() {
  if (stopping_) return;
  for (const Rank& rank : ranks_) {
    if (!rank.end || !rank.end->failed()) continue;
    if (failed_ == nullptr || (failed_->end->signal == 0 && rank.end->signal != 0)) failed_ = &rank;
  }
  if (failed_ == nullptr) return;
  const std::size_t others = living();
  const std::string rest = others == 0 ? "" : fmt::format("; stopping the other {}", others);
  const std::string what = fmt::format("{} ended with {}", failed_->name(), failed_->end->text());
  context_.say(what + rest);
  context_.machines.tell({what, failed_->end->shell_code(), true});
  stop(SIGTERM);
}

void Attempt::hear_machines() {
  auto failure = context_.machines.read();
  if (!failure || stopping_) return;
  context_.say(fmt::format("{}; stopping {} here", failure->text, living()));
  failed_elsewhere_ = std::move(failure);
  stop(SIGTERM);
}

void Attempt::on_signal(const ReceivedSignal& signal) {
  if (signal.number == SIGCHLD) {
    std::vector<pid_t> kept{context_.guard.pid()};
    for (const Rank& rank : ranks_) kept.push_back(rank.pid);
    collect_orphans(kept);
    return;
  }
  if (signal.number == SIGTSTP) {
    pause();
    return;
  }
  if (stopping_) {
    kill_all("is killed by a second signal");
    return;
  }
  signal_ = signal.number;
  context_.machines.tell({fmt::format("ended by signal {}", signal_), 128 + signal_, false});
  // A key of the terminal has reached a rank that shares the launcher's group already.
  if (!own_groups_ && signal.from_terminal) {
    stop(0);
  } else {
    stop(signal.number);
  }
}

void Attempt::pause() {
  for (const Rank& rank : ranks_) send(rank, SIGTSTP);
  ::raise(SIGSTOP);
  for (const Rank& rank : ranks_) send(rank, SIGCONT);
}

void Attempt::send(const Rank& rank, int signal) const {
  ::kill(own_groups_ ? -rank.pid : rank.pid, signal);
}

// Asks all ranks, and what they left behind, to end.
void Attempt::stop(int signal) {
  stopping_ = true;
  deadline_ = Clock::now() + context_.options.grace;
  for (const Rank& rank : ranks_) {
    send(rank, signal);
    send(rank, SIGCONT);
  }
}

void Attempt::kill_all(const char* why) {
  killed_ = true;
  for (const Rank& rank : ranks_) {
    if (!rank.end) context_.say(fmt::format("{} {}", rank.name(), why));
    send(rank, SIGKILL);
  }
}

void Attempt::finish() {
  finished_ = true;
  for (const int descriptor : to_close_) ::close(descriptor);
  to_close_.clear();
  for (const Rank& rank : ranks_) {
    if (rank.descriptor >= 0) ::close(rank.descriptor);
    send(rank, SIGKILL);
  }
  end_descendants(context_.guard.pid());
  context_.guard.forget();
  // Nobody writes any more: what is in the pipes is all.
  for (RankStream& stream : streams_) {
    while (stream.descriptor() >= 0 && stream.read_some()) {
    }
  }
}

void Attempt::report() {
  std::string lines;
  if (failed_->error_stream > 0) lines = last_lines(streams_[failed_->error_stream - 1].tail());
  if (!failed_->error_log.empty()) lines = last_lines_of_file(failed_->error_log);
  if (lines.empty()) return;
  context_.say(fmt::format("the last lines of rank {}:\n{}", failed_->number, indented(lines)));
}

}  // namespace haul::core
