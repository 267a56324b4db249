#include "core/launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "core/launch/attempt.h"
#include "core/launch/cpu_topology.h"
#include "core/launch/ports.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

// Descriptors that the caller closed would become pipes.
void open_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

// A new folder for the logs of this run.
fs::path make_log_folder(const fs::path& base) {
  std::error_code error;
  fs::create_directories(base, error);
  std::string pattern = base / "none_XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: cannot make a folder: {}", base.string(), std::strerror(errno)));
  }
  ::chmod(pattern.c_str(), 0755);
  return pattern;
}

int choose_port(LaunchContext& context) {
  const LaunchPlan& plan = context.plan;
  if (plan.master_port == 0) return free_port();
  if (plan.machine_rank > 0 || port_is_free(plan.master_port)) return plan.master_port;
  if (plan.num_machines > 1) {
    throw Error(ErrorKind::kResource, fmt::format("port {} is in use", plan.master_port),
                "give another --main_process_port on all machines");
  }
  const int other = free_port();
  context.say(fmt::format("port {} is in use; taking {}", plan.master_port, other));
  return other;
}

void tell_waiting(LaunchContext& context) {
  const LaunchPlan& plan = context.plan;
  if (plan.num_machines == 1) return;
  context.say(fmt::format("machine {} of {} waits for the others at {}:{}", plan.machine_rank,
                          plan.num_machines, plan.master_addr, plan.master_port));
}

// Until the reader has taken everything, or a signal says that it need not.
void flush(LaunchContext& context) {
  for (Sink* sink : {&context.out, &context.err}) {
    while (sink->pending()) {
      pollfd wanted[] = {{sink->descriptor(), POLLOUT, 0},
                         {context.signals.descriptor(), POLLIN, 0}};
      if (::poll(wanted, 2, -1) < 0 && errno != EINTR) return;
      const auto signal = context.signals.next();
      if (signal && signal->asks_to_end()) return;
      sink->write_some();
    }
  }
}

}  // namespace

LaunchEnd launch(const LaunchPlan& plan, const LaunchOptions& options) {
  open_standard_descriptors();
  const Signals signals;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const Guard guard;
  LaunchContext context(plan, options, signals, guard);
  if (plan.pin_cores) {
    context.cores = share_cores(read_cores("/", allowed_cpus()), plan.local_world);
  }
  if (options.log_dir) {
    context.logs = make_log_folder(*options.log_dir);
    context.say(fmt::format("logs are in {}", context.logs.string()));
  }
  LaunchEnd result;
  for (int number = 0;; ++number) {
    const int port = choose_port(context);
    tell_waiting(context);
    result.signal = context.machines.meet(number);
    if (result.signal != 0) break;
    const Attempt::End end = Attempt(context, number, port).run();
    result.signal = end.signal;
    result.exit_code = end.exit_code;
    if (!end.restarts || end.signal != 0 || number == options.max_restarts) break;
    context.say(fmt::format("restart {} of {}", number + 1, options.max_restarts));
  }
  flush(context);
  return result;
}

}  // namespace haul::core
