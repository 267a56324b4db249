#include <algorithm>

#include "kernels/cuda/curves.cuh"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

// One large block a processor, whose threads have many loads under way, serves best in a whole
// model: the next kernel's begins to fetch when it ends.
constexpr int kThreads = kNormThreads;
constexpr int kWarps = kThreads / kLanes;
constexpr int kBlocks = 1;                      // on a processor at once
constexpr std::size_t kMostNumbers = 56 << 10;  // in shared memory; some GPUs have less
// A thread's part of a tile: of one row, or of a gate's and its weight's at once.
constexpr int kTileChunks = 8;
constexpr std::size_t kTileBytes = kTileChunks * kThreads * sizeof(uint4);

struct Task {
  FewRows job;
  bool shares;  // there is shared memory for a tile; else one alone is on its way
};

// What goes into a product beside the row.
template <typename Number, int kStreams>
struct Beside {
  Number biases[kStreams];
  Number gate, residual;
};

// A row, counted over all weights, and a tile of it.
struct Place {
  int row, tile;
};

// Two tiles are on their way to a warp, one to registers and one to shared memory: the compiler
// gives all loads to registers that a loop waits for one counter, so that to wait for one of them
// is to wait for those that were asked for since. A curve without a gate has kernels of its own, so
// that the others' code is not for both.
template <typename T, int kVectors, bool kGates, bool kCurves, bool kNorms>
__global__ void __launch_bounds__(kThreads, kBlocks) few_rows(const __grid_constant__ Task task) {
  constexpr int kStreams = kGates ? 2 : 1;
  constexpr int kUnroll = kTileChunks / kStreams;
  const FewRows& job = task.job;
  uint4* const x_shared = dynamic_shared();  // (vectors, chunks)
  let_next_begin();
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  // Neighbouring rows go to different processors, so that the last ones are spread over all.
  const int first = static_cast<int>(threadIdx.x) / kLanes * static_cast<int>(gridDim.x) +
                    static_cast<int>(blockIdx.x);
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  const int chunks = job.width / kWide<T>;
  const int tiles = (chunks + kLanes * kUnroll - 1) / (kLanes * kUnroll);
  int total = 0;
  for (int i = 0; i < job.count; ++i) total += job.weights[i].rows;
  if (kGates) total /= 2;

  const auto advance = [&](Place& place) {
    if (++place.tile < tiles) return;
    place.tile = 0;
    place.row += stride;
  };
  const auto find = [&](int& row) {  // the weight of a row, and which of its rows it is
    int weight = 0;
    while (weight + 1 < job.count && row >= job.weights[weight].rows) {
      row -= job.weights[weight++].rows;
    }
    return weight;
  };
  Place ahead{first, 0};
  // Calls take(stream, u, chunk's address) for a lane's part of the tile ahead.
  const auto for_tile_ahead = [&](const auto& take) {
    if (ahead.row >= total) return;
    int row = ahead.row;
    const int weight = kGates ? 0 : find(row);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      const uint4* const from = static_cast<const uint4*>(job.weights[weight + s].weight) +
                                static_cast<std::size_t>(row) * static_cast<std::size_t>(chunks);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int chunk = (ahead.tile * kUnroll + u) * kLanes + lane;
        if (chunk < chunks) take(s, u, from + chunk);
      }
    }
    advance(ahead);
  };
  uint4 tile[kStreams][kUnroll];
  const auto load = [&] {
    for_tile_ahead([&](int s, int u, const uint4* from) { tile[s][u] = passing(from); });
  };
  uint4* const norm_shared = x_shared + kVectors * chunks;
  uint4* const tile_shared =
      norm_shared +
      bytes_for_norm<T>(job.norm, static_cast<std::size_t>(job.width), kVectors) / sizeof(uint4) +
      threadIdx.x;
  const auto in_shared = [&](int s, int u) { return tile_shared + (s * kUnroll + u) * kThreads; };
  const PassingCopies copies;
  const auto copy = [&] {
    if (task.shares) {
      for_tile_ahead(
          [&](int s, int u, const uint4* from) { copies.copy_ahead(in_shared(s, u), from); });
    }
    end_copies();
  };

  // A lane ends one of the warp's next rows for one vector, and asks for what it needs when the
  // warp begins: at the end of a row it would wait for it.
  constexpr int kEnds = kLanes / kVectors;
  Beside<T, kStreams> asked = {};
  const auto load_biases = [&](int row) {  // from this row on
    row += lane % kEnds * stride;
    if (lane / kEnds >= kVectors || row >= total) return;
    const int weight = kGates ? 0 : find(row);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      const auto* const bias = static_cast<const T*>(job.weights[weight + s].bias);
      if (bias != nullptr) asked.biases[s] = bias[row];
    }
  };
  const auto load_fresh = [&](int row) {  // REQUIRES: after_previous()
    row += lane % kEnds * stride;
    if (lane / kEnds >= kVectors || row >= total) return;
    const std::size_t at =
        static_cast<std::size_t>(lane / kEnds) * static_cast<std::size_t>(total) +
        static_cast<std::size_t>(row);
    if (job.gate != nullptr) asked.gate = fresh(static_cast<const T*>(job.gate) + at);
    if (job.residual != nullptr) asked.residual = fresh(static_cast<const T*>(job.residual) + at);
  };
  Beside<float, kStreams> beside;
  const auto take_asked = [&] {
#pragma unroll
    for (int s = 0; s < kStreams; ++s) beside.biases[s] = as_float(asked.biases[s]);
    beside.gate = as_float(asked.gate);
    beside.residual = as_float(asked.residual);
  };

  // Before the tile, behind which it would arrive.
  load_biases(first);
  if constexpr (kNorms) fetch_norm(job.norm, chunks, norm_shared);
  load();  // before there is anything to multiply
  after_previous();
  load_fresh(first);
  // The other tile when the vectors are there, which would arrive behind it.
  const auto* const x_fresh = static_cast<const uint4*>(job.x);
  if constexpr (kNorms) {
    float sums[kVectors] = {};
    take_rows<T>(job.norm, x_fresh, chunks, x_shared, sums);
    copy();
    normalise<T, 1>(job.norm, chunks, norm_shared, x_shared, sums);
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kVectors * chunks; i += kThreads) {
      x_shared[i] = fresh(x_fresh + i);
    }
    copy();
  }
  __syncthreads();
  take_asked();

  Place place{first, 0};
  int ended = 0;  // rows, of those whose ends were asked for
  float sums[kStreams][kVectors] = {};
  const auto multiply = [&](const auto& word) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int chunk = (place.tile * kUnroll + u) * kLanes + lane;
      if (chunk >= chunks) continue;
      float w[kStreams][kWide<T>];
#pragma unroll
      for (int s = 0; s < kStreams; ++s) unpack<T>(word(s, u), w[s]);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        float x[kWide<T>];
        unpack<T>(x_shared[v * chunks + chunk], x);
#pragma unroll
        for (int s = 0; s < kStreams; ++s) {
#pragma unroll
          for (int i = 0; i < kWide<T>; ++i) sums[s][v] = fmaf(w[s][i], x[i], sums[s][v]);
        }
      }
    }
  };
  const auto finish = [&] {
    int at = place.row;
    const int weight = kGates ? 1 : find(at);
    const Rows& rows = job.weights[weight];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int s = 0; s < kStreams; ++s) sums[s][v] = sum_of_lanes(sums[s][v]);
      if (lane == v * kEnds + ended) {
        const auto rounded_sum = [&](int s) {
          return rounded<T>(job.weights[weight + s - (kStreams - 1)].bias == nullptr
                                ? sums[s][v]
                                : sums[s][v] + beside.biases[s]);
        };
        const std::size_t to = static_cast<std::size_t>(v) * static_cast<std::size_t>(rows.rows) +
                               static_cast<std::size_t>(at);
        float value = rounded_sum(kStreams - 1);
        if (kGates) {
          value = value * curved<T>(rounded_sum(0), job.curve);
        } else if (job.gate != nullptr) {
          value = value * curved<T>(beside.gate, job.curve);
        } else if (kCurves) {
          value = curved<T>(value, job.curve);
        }
        if (job.residual != nullptr) value += beside.residual;
        static_cast<T*>(rows.out)[to] = as_number<T>(value);
      }
#pragma unroll
      for (int s = 0; s < kStreams; ++s) sums[s][v] = 0;
    }
  };
  const auto end_tile = [&] {
    const bool ends = place.tile + 1 == tiles;
    if (ends) finish();
    advance(place);
    if (!ends || ++ended < kEnds) return;
    ended = 0;
    load_biases(place.row);
    load_fresh(place.row);
    take_asked();
  };
  while (place.row < total) {
    multiply([&](int s, int u) { return tile[s][u]; });
    load();
    end_tile();
    if (!task.shares || place.row >= total) continue;
    wait_for_copies();
    multiply([&](int s, int u) { return *in_shared(s, u); });
    copy();
    end_tile();
  }
}

// Beside the tile.
template <typename T>
std::size_t shared_for(std::size_t width, int vectors, const NormBy& norm) {
  return width * sizeof(T) * static_cast<std::size_t>(vectors) +
         bytes_for_norm<T>(norm, width, vectors);
}

template <typename T, bool kGates, bool kCurves>
cudaError_t start_for(const FewRows& job, dim3 grid, cudaStream_t stream) {
  std::size_t shared = shared_for<T>(static_cast<std::size_t>(job.width), job.vectors, job.norm);
  const Task task{job, shared + kTileBytes <= current_machine().shared};
  if (task.shares) shared += kTileBytes;
  return for_vectors(job.vectors, [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    return start(job.norm.weight == nullptr ? few_rows<T, kVectors, kGates, kCurves, false>
                                            : few_rows<T, kVectors, kGates, kCurves, true>,
                 task, grid, kThreads, shared, stream);
  });
}

}  // namespace

bool serves_width(Numbers numbers, std::size_t width, int vectors, const NormBy& norm) {
  return for_numbers(numbers, [&](auto number) {
    using T = decltype(number);
    const std::size_t most = std::min(kMostNumbers * sizeof(T), current_machine().shared);
    return width > 0 && width % kWide<T> == 0 && vectors >= 1 && vectors <= kFewVectors &&
           shared_for<T>(width, vectors, norm) <= most;
  });
}

cudaError_t multiply_few_rows(const FewRows& job, cudaStream_t stream) {
  int total = 0;
  for (int i = 0; i < job.count; ++i) total += job.weights[i].rows;
  if (job.gates) total /= 2;
  if (total == 0) return cudaSuccess;
  const int most = current_machine().processors * kBlocks;
  const int needed = (total + kWarps - 1) / kWarps;
  const dim3 grid(static_cast<unsigned>(needed < most ? needed : most));
  return for_numbers(job.numbers, [&](auto number) {
    using T = decltype(number);
    if (job.gates) return start_for<T, true, false>(job, grid, stream);
    return job.curves ? start_for<T, false, true>(job, grid, stream)
                      : start_for<T, false, false>(job, grid, stream);
  });
}

}  // namespace haul::kernels::cuda
