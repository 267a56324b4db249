#include <algorithm>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/curves.cuh"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

// A cluster has a strip of columns, and each of its blocks some of the rows. A block's threads take
// these in turns, with two tiles of them on their way at any time: one to registers, one to shared
// memory (few_rows.cu says why). Both are asked for before the vectors, because a block often
// begins long before they are there.
constexpr int kThreads = kNormThreads;
constexpr int kWarps = kThreads / kLanes;
constexpr int kUnroll = 4;
constexpr std::size_t kTileBytes = kUnroll * kThreads * sizeof(uint4);
constexpr int kBlocks = 2;  // of a single vector's product, on a processor at once
constexpr std::size_t kMostNumbers = 48 << 10;  // in shared memory; some GPUs have less

// Wide strips suit the memory. Without clusters they are narrow where that spreads a weight over
// more processors, but no row of one is less than the 32 bytes that memory gives at once.
constexpr int kNarrow = 16, kWider = 32;  // columns
template <typename T>
constexpr int kWidest = 256 / sizeof(T);

struct Task {
  Columns job;
  bool shares;  // there is shared memory for a tile; else one alone is on its way
};

// The shared memory of a block but for the tile, its vectors and their norm, which follow.
template <int kVectors, int kStrip>
struct ColumnsRoom {
  float of_warps[kWarps][kStrip];
  float sums[kMostCluster][kVectors][kStrip];  // of the cluster's blocks; of some columns each
};

// Where two blocks fit on a processor that of the next kernel begins before this one's ends.
template <typename T, int kVectors, int kStrip, bool kNorms>
__global__ void __launch_bounds__(kThreads, kVectors == 1 ? kBlocks : 1)
    columns(const __grid_constant__ Task task) {
  const Columns& job = task.job;
  using Room = ColumnsRoom<kVectors, kStrip>;
  constexpr int kChunks = kStrip / kWide<T>;
  constexpr int kRows = kThreads / kChunks;
  constexpr int kTileRows = kRows * kUnroll;  // rows
  auto& room = *reinterpret_cast<Room*>(dynamic_shared());
  uint4* const behind_room = reinterpret_cast<uint4*>(&room + 1);
  uint4* const tile_shared = behind_room + threadIdx.x;
  auto* const x_shared = reinterpret_cast<T*>(  // (vectors, width)
      behind_room + (task.shares ? kTileBytes / sizeof(uint4) : 0));
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int blocks = cluster_size();
  const int rank = rank_in_cluster();
  if (blocks > 1) come_to_cluster();
  const int each = (job.width + blocks - 1) / blocks;
  const int first = rank * each;
  const int end = min(job.width, first + each);
  const int row = first + thread / kChunks;
  const int strip = static_cast<int>(blockIdx.x) / blocks * kStrip;
  const int column = strip + thread % kChunks * kWide<T>;
  const bool inside = column < job.columns;
  const auto* const weight = static_cast<const T*>(job.weight);
  // Calls take(u, chunk's address) for a thread's part of the tile that begins with a row.
  const auto for_tile = [&](int begin, const auto& take) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = begin + u * kRows + row;
      const std::size_t from =
          static_cast<std::size_t>(at) * static_cast<std::size_t>(job.columns) +
          static_cast<std::size_t>(column);
      if (inside && at < end) take(u, reinterpret_cast<const uint4*>(weight + from));
    }
  };
  uint4 tile[kUnroll];
  const auto load = [&](int begin) {
    for_tile(begin, [&](int u, const uint4* from) { tile[u] = passing(from); });
  };
  const PassingCopies copies;
  const auto copy = [&](int begin) {
    if (task.shares) {
      for_tile(begin, [&](int u, const uint4* from) {
        copies.copy_ahead(tile_shared + u * kThreads, from);
      });
    }
    end_copies();
  };
  // A thread ends one of the sums, or none: what is added to it comes beside the weight, and stays
  // as it came, because a conversion would wait for it.
  static_assert(kVectors * kStrip <= kThreads);
  const int own = rank + thread * blocks;
  const int own_column = strip + own % kStrip;
  const bool ends = own < kVectors * kStrip && own_column < job.columns;
  const std::size_t own_place =
      static_cast<std::size_t>(own / kStrip) * static_cast<std::size_t>(job.columns) +
      static_cast<std::size_t>(own_column);
  T bias{}, residual{};
  if (ends && job.bias != nullptr) bias = static_cast<const T*>(job.bias)[own_column];
  auto* const norm_shared = reinterpret_cast<uint4*>(x_shared + kVectors * job.width);
  if constexpr (kNorms) fetch_norm(job.norm, job.width / kWide<T>, norm_shared);
  // Before there is anything to multiply.
  copy(0);
  load(task.shares ? kTileRows : 0);
  after_previous();
  if (ends && job.residual != nullptr) {
    residual = fresh(static_cast<const T*>(job.residual) + own_place);
  }
  if constexpr (kNorms) {
    const int chunks = job.width / kWide<T>;
    auto* const rows = reinterpret_cast<uint4*>(x_shared);
    float sums[kVectors] = {};
    take_rows<T>(job.norm, static_cast<const uint4*>(job.x), chunks, rows, sums);
    normalise<T, 1>(job.norm, chunks, norm_shared, rows, sums);
  } else {
    for (int v = 0; v < kVectors; ++v) {
      for (int i = v * job.width + first + thread; i < v * job.width + end; i += kThreads) {
        x_shared[i] = fresh(static_cast<const T*>(job.x) + i);
      }
    }
  }
  __syncthreads();

  float sums[kVectors][kWide<T>] = {};
  const auto multiply = [&](int begin, const auto& word) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = begin + u * kRows + row;
      if (!inside || at >= end) continue;
      float w[kWide<T>];
      unpack(word(u), w);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const float factor = as_float(x_shared[v * job.width + at]);
#pragma unroll
        for (int i = 0; i < kWide<T>; ++i) sums[v][i] = fmaf(w[i], factor, sums[v][i]);
      }
    }
  };
  for (int begin = 0; begin < each; begin += kTileRows) {
    if (task.shares) {
      wait_for_copies();
      multiply(begin, [&](int u) { return tile_shared[u * kThreads]; });
      copy(begin + 2 * kTileRows);
      begin += kTileRows;
    }
    multiply(begin, [&](int u) { return tile[u]; });
    load(begin + (task.shares ? 2 : 1) * kTileRows);
  }

  if (blocks > 1) wait_until_all_came();
  const int lane = thread % kLanes;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWide<T>; ++i) {
      // Lanes that are kChunks apart have the same columns.
      float sum = sums[v][i];
      for (int step = kChunks; step < kLanes; step *= 2) sum += __shfl_xor_sync(kAll, sum, step);
      if (lane < kChunks) room.of_warps[thread / kLanes][lane * kWide<T> + i] = sum;
    }
    __syncthreads();
    if (thread < kStrip) {
      float sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += room.of_warps[warp][thread];
      reinterpret_cast<Room*>(shared_of(thread % blocks))->sums[rank][v][thread] = sum;
    }
    __syncthreads();
  }
  if (blocks > 1) wait_for_cluster();
  if (!ends) return;
  float sum = 0;
  for (int of = 0; of < blocks; ++of) sum += room.sums[of][own / kStrip][own % kStrip];
  if (job.bias != nullptr) sum += as_float(bias);
  if (job.curves) sum = curved<T>(rounded<T>(sum), job.curve);
  if (job.residual != nullptr) sum = rounded<T>(sum) + as_float(residual);
  static_cast<T*>(job.out)[own_place] = as_number<T>(sum);
}

// Beside the tile. All of it asked for when the kernel starts: what it had of its own would count
// as well.
template <typename T>
std::size_t shared_for(std::size_t width, int vectors, const NormBy& norm) {
  const std::size_t bytes =
      (kWarps + kMostCluster * static_cast<std::size_t>(vectors)) * kWidest<T> * sizeof(float) +
      width * sizeof(T) * static_cast<std::size_t>(vectors) +
      bytes_for_norm<T>(norm, width, vectors);
  return (bytes + sizeof(uint4) - 1) / sizeof(uint4) * sizeof(uint4);
}

template <typename T, int kStrip>
cudaError_t start_for(const Columns& job, int strips, int cluster, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(strips * cluster));
  std::size_t shared = shared_for<T>(static_cast<std::size_t>(job.width), job.vectors, job.norm);
  const Task task{job, shared + kTileBytes <= current_machine().shared};
  if (task.shares) shared += kTileBytes;
  return for_vectors(job.vectors, [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    return start(job.norm.weight == nullptr ? columns<T, kVectors, kStrip, false>
                                            : columns<T, kVectors, kStrip, true>,
                 task, grid, kThreads, shared, stream, cluster);
  });
}

int strips_of(const Columns& job, int strip) {
  return (job.columns + strip - 1) / strip;
}

}  // namespace

bool serves_columns(Numbers numbers, std::size_t width, std::size_t columns, int vectors,
                    const NormBy& norm) {
  return for_numbers(numbers, [&](auto number) {
    using T = decltype(number);
    const std::size_t most = std::min(kMostNumbers * sizeof(T), current_machine().shared);
    return width > 0 && columns > 0 && columns % kWide<T> == 0 && vectors >= 1 &&
           vectors <= kFewVectors && shared_for<T>(width, vectors, norm) <= most;
  });
}

cudaError_t multiply_columns(const Columns& job, cudaStream_t stream) {
  const Machine machine = current_machine();
  return for_numbers(job.numbers, [&](auto number) {
    using T = decltype(number);
    if (machine.cluster > 1) {
      const int strips = strips_of(job, kWidest<T>);
      int cluster = 1;
      while (cluster < machine.cluster && 2 * cluster * strips <= kBlocks * machine.processors) {
        cluster *= 2;
      }
      return start_for<T, kWidest<T>>(job, strips, cluster, stream);
    }
    return job.columns < machine.processors * kWider
               ? start_for<T, kNarrow>(job, strips_of(job, kNarrow), 1, stream)
               : start_for<T, kWider>(job, strips_of(job, kWider), 1, stream);
  });
}

}  // namespace haul::kernels::cuda
