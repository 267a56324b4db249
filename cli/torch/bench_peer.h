#pragma once

namespace haul::cli {

// The text of benchmarks/system/peer.py.
extern const char* const kBenchPeer;

}  // namespace haul::cli
