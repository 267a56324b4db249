#pragma once

// What a launcher tells a rank, for tests that start processes themselves. A thread each.

#include <map>
#include <string>

namespace haul::test {

inline std::map<std::string, std::string> rank_variables(int rank, int world, int port) {
  return {{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)},
          {"LOCAL_WORLD_SIZE", std::to_string(world)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"OMP_NUM_THREADS", "1"}};
}

}  // namespace haul::test
