#pragma once

// `haul bench offload|load|decode|throughput`: a checkpoint of random weights, run by haul and by
// its peer in turns, beside what the machine could do at most.

#include <filesystem>
#include <string>

namespace haul::cli {

struct BenchOptions {
  std::string shape;             // empty: one that suits the machine
  std::filesystem::path folder;  // for the checkpoint, which stays there for the next time
  std::string peer;              // its Python; empty: without a peer
  int rounds = 5;
  bool json = false;
};

// Each prints its table, or JSON. Throws Error(kCorrupt) where haul's ids are not the peer's.
void bench_offload(const BenchOptions& options);
void bench_load(const BenchOptions& options);
void bench_decode(const BenchOptions& options);
void bench_throughput(const BenchOptions& options);

}  // namespace haul::cli
