#pragma once

// Tests by real processes on this machine, each a parallel_worker.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/launch/ports.h"
#include "tests/support/live_process.h"
#include "tests/support/rank_variables.h"
#include "tests/support/temporary_folder.h"

namespace haul::test {

class Processes : public ::testing::Test {
 protected:
  void expect_all_right(const std::string& name, int world) {
    SCOPED_TRACE(name + ", " + std::to_string(world) + " processes");
    const int port = core::free_port();
    std::vector<std::unique_ptr<LiveProcess>> processes;
    for (int i = 0; i < world; ++i) {
      processes.push_back(std::make_unique<LiveProcess>(
          std::vector<std::string>{HAUL_PARALLEL_WORKER, name, folder_.path()},
          rank_variables(i, world, port)));
    }
    for (const auto& process : processes) {
      const Finished ended = process->wait(std::chrono::seconds(300));
      EXPECT_EQ(ended.exit_code, 0) << ended.err;
    }
  }
  void write(std::vector<std::string> what) {
    what.insert(what.begin(), HAUL_PARALLEL_WORKER);
    what.insert(what.begin() + 2, folder_.path());
    const Finished made = run_process(what);
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }

  TemporaryFolder folder_{std::filesystem::current_path()};
};

}  // namespace haul::test
