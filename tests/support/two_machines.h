#pragma once

// Two machines on one: network namespaces that a cable of the kernel joins, or, where those cannot
// be made (no root, no `ip`), two addresses of the loopback device.

#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/run_process.h"

namespace haul::test {

class TwoMachines {
 public:
  TwoMachines() {
    apart_ = lay_cable();
    if (!apart_) remove();
  }
  TwoMachines(const TwoMachines&) = delete;
  TwoMachines& operator=(const TwoMachines&) = delete;
  ~TwoMachines() { remove(); }

  // Whether they are namespaces: nothing of one is seen by the other but over the cable.
  bool are_apart() const { return apart_; }
  std::string address(int machine) const {
    return (apart_ ? "10.213.7." : "127.0.0.") + std::to_string(machine + 1);
  }
  // A command, as it is started on one of them.
  std::vector<std::string> on(int machine, std::vector<std::string> command) const {
    if (apart_) command.insert(command.begin(), {"ip", "netns", "exec", name(machine)});
    return command;
  }

 private:
  static std::string name(int machine) {
    return "haul-" + std::to_string(::getpid()) + "-" + std::to_string(machine);
  }
  static std::string end(int machine) {
    return "hv" + std::to_string(::getpid()) + std::to_string(machine);
  }
  static bool ip(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "ip");
    return run_process(arguments).exit_code == 0;
  }

  bool lay_cable() const {
    for (const int machine : {0, 1}) {
      if (!ip({"netns", "add", name(machine)})) return false;
    }
    if (!ip({"link", "add", end(0), "netns", name(0), "type", "veth", "peer", "name", end(1),
             "netns", name(1)})) {
      return false;
    }
    for (const int machine : {0, 1}) {
      const std::string network = std::string("10.213.7.") + std::to_string(machine + 1) + "/24";
      if (!ip({"-n", name(machine), "addr", "add", network, "dev", end(machine)}) ||
          !ip({"-n", name(machine), "link", "set", end(machine), "up"}) ||
          !ip({"-n", name(machine), "link", "set", "lo", "up"}) ||
          !ip({"netns", "exec", name(machine), "true"})) {
        return false;
      }
    }
    return true;
  }
  static void remove() {
    for (const int machine : {0, 1}) ip({"netns", "del", name(machine)});
  }

  bool apart_ = false;
};

}  // namespace haul::test
