#include <algorithm>
#include <type_traits>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/curves.cuh"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

// A cluster has a strip of columns, and each of its blocks some of the rows. A block's threads take
// these in turns, with two tiles of them on their way to shared memory at any time. The first are
// asked for before the vectors, because a block often begins long before they are there.
constexpr int kThreads = kNormThreads;
constexpr int kWarps = kThreads / kLanes;
constexpr int kTiles = 2;
constexpr int kMore = 4, kLess = 1;  // chunks of a thread in a tile; less where more do not fit
constexpr int kBlocks = 2;           // of a single vector's product, on a processor if they fit
constexpr std::size_t kMostNumbers = 48 << 10;  // in shared memory; some GPUs have less

// Without clusters strips are narrow where that spreads a weight over more processors, but no row
// of one is less than the 32 bytes that memory gives at once.
constexpr int kNarrow = 16, kWider = 32, kWidest = 64;  // columns

// The shared memory of a block but for the tiles, its vectors and their norm, which follow.
template <int kVectors, int kStrip>
struct ColumnsRoom {
  float of_warps[kWarps][kStrip];
  float sums[kMostCluster][kVectors][kStrip];  // of the cluster's blocks; of some columns each
};

constexpr int bytes_of_tiles(int chunks) {
  return kTiles * chunks * kThreads * static_cast<int>(sizeof(uint4));
}

// The rows of a weight that a block of a cluster has. The last may have fewer.
template <typename T>
__host__ __device__ int rows_of_block(int width, int blocks) {
  return (width / kWide<T> + blocks - 1) / blocks * kWide<T>;  // whole chunks of a vector
}

// Where two blocks fit on a processor that of the next kernel begins before this one's ends.
template <typename T, int kVectors, int kStrip, bool kNorms, int kUnroll>
__global__ void __launch_bounds__(kThreads, kVectors == 1 ? kBlocks : 1)
    columns(const __grid_constant__ Columns job) {
  using Room = ColumnsRoom<kVectors, kStrip>;
  constexpr int kChunks = kStrip / kWide<T>;
  constexpr int kRows = kThreads / kChunks;
  constexpr int kTileRows = kRows * kUnroll;
  auto& room = *reinterpret_cast<Room*>(dynamic_shared());
  auto* const tiles = reinterpret_cast<uint4*>(&room + 1);
  uint4* const x_shared = tiles + kTiles * kUnroll * kThreads;  // (vectors, chunks)
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int blocks = cluster_size();
  const int rank = rank_in_cluster();
  if (blocks > 1) come_to_cluster();
  const int each = rows_of_block<T>(job.width, blocks);
  const int first = rank * each;
  const int end = min(job.width, first + each);
  const int row = first + thread / kChunks;
  const int strip = static_cast<int>(blockIdx.x) / blocks * kStrip;
  const int column = strip + thread % kChunks * kWide<T>;
  const bool inside = column < job.columns;
  const auto* const weight = static_cast<const T*>(job.weight);
  const auto tile_of = [&](int index) {  // a thread's part of it
    return tiles + index * (kUnroll * kThreads) + thread;
  };
  const PassingCopies copies;
  const auto copy = [&](int begin, uint4* to) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = begin + u * kRows + row;
      if (!inside || at >= end) continue;
      const std::size_t from =
          static_cast<std::size_t>(at) * static_cast<std::size_t>(job.columns) +
          static_cast<std::size_t>(column);
      copies.copy_ahead(to + u * kThreads, reinterpret_cast<const uint4*>(weight + from));
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
  // A norm needs whole vectors, a product its block's part of them.
  const int chunks = job.width / kWide<T>;
  const int first_chunk = kNorms ? 0 : first / kWide<T>;
  const int own_chunks = kNorms ? chunks : each / kWide<T>;
  uint4* const norm_shared = x_shared + kVectors * own_chunks;
  if constexpr (kNorms) fetch_norm(job.norm, chunks, norm_shared);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) copy(i * kTileRows, tile_of(i));
  after_previous();
  if (ends && job.residual != nullptr) {
    residual = fresh(static_cast<const T*>(job.residual) + own_place);
  }
  const auto* const x_fresh = static_cast<const uint4*>(job.x);
  if constexpr (kNorms) {
    float sums[kVectors] = {};
    take_rows<T>(job.norm, x_fresh, chunks, x_shared, sums);
    normalise<T, kTiles>(job.norm, chunks, norm_shared, x_shared, sums);
  } else {
    const int count = min(own_chunks, chunks - first_chunk);
    for (int v = 0; v < kVectors; ++v) {
      for (int i = thread; i < count; i += kThreads) {
        x_shared[v * own_chunks + i] = fresh(x_fresh + v * chunks + first_chunk + i);
      }
    }
  }
  __syncthreads();

  float sums[kVectors][kWide<T>] = {};
  const auto* const factors = reinterpret_cast<const T*>(x_shared);
  int now = 0;  // of the tiles
  for (int begin = 0; begin < each; begin += kTileRows) {
    wait_for_copies<kTiles - 1>();
    uint4* const tile = tile_of(now);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = begin + u * kRows + row;
      if (!inside || at >= end) continue;
      float w[kWide<T>];
      unpack<T>(tile[u * kThreads], w);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const float factor = as_float(factors[(v * own_chunks - first_chunk) * kWide<T> + at]);
#pragma unroll
        for (int i = 0; i < kWide<T>; ++i) sums[v][i] = fmaf(w[i], factor, sums[v][i]);
      }
    }
    copy(begin + kTiles * kTileRows, tile);
    now = (now + 1) % kTiles;
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
      reinterpret_cast<Room*>(shared_of((v * kStrip + thread) % blocks))->sums[rank][v][thread] =
          sum;
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

// All of it asked for when the kernel starts: what it had of its own would count as well.
template <typename T>
std::size_t shared_for(int width, int vectors, const NormBy& norm, int cluster) {
  const auto rows = static_cast<std::size_t>(vectors);
  const auto whole = static_cast<std::size_t>(width);
  const std::size_t own =
      norm.weight == nullptr ? static_cast<std::size_t>(rows_of_block<T>(width, cluster)) : whole;
  return (kWarps + kMostCluster * rows) * kWidest * sizeof(float) + rows * own * sizeof(T) +
         bytes_for_norm<T>(norm, whole, vectors);
}

int strips_of(int columns, int strip) {
  return (columns + strip - 1) / strip;
}

template <typename T, int kStrip>
cudaError_t start_for(const Columns& job, const Machine& machine, int cluster,
                      cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(strips_of(job.columns, kStrip) * cluster));
  const std::size_t shared = shared_for<T>(job.width, job.vectors, job.norm, cluster);
  const bool fits = shared + bytes_of_tiles(kMore) <= machine.shared;
  return for_vectors(job.vectors, [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    const auto start_with = [&](auto unroll) {
      constexpr int kUnroll = decltype(unroll)::value;
      return start(job.norm.weight == nullptr ? columns<T, kVectors, kStrip, false, kUnroll>
                                              : columns<T, kVectors, kStrip, true, kUnroll>,
                   job, grid, kThreads, shared + bytes_of_tiles(kUnroll), stream, cluster);
    };
    return fits ? start_with(std::integral_constant<int, kMore>())
                : start_with(std::integral_constant<int, kLess>());
  });
}

// So many blocks that each has twice what is on its way, if that gives most processors one. Fewer
// than fit at once: a cluster has to find room in a group of processors, or waits until others end.
// The fractions are those of the fastest sizes for GPT-2 XL on an H200.
template <typename T>
int cluster_for(int width, int columns, const Machine& machine) {
  const int strips = strips_of(columns, kWidest);
  const std::size_t bytes =
      static_cast<std::size_t>(width) * static_cast<std::size_t>(columns) * sizeof(T);
  const auto worth = static_cast<int>(bytes / (2 * bytes_of_tiles(kMore)));
  const int wanted = std::max(worth, machine.processors * 3 / 4);
  const int most = kBlocks * machine.processors * 6 / 7;
  return std::clamp(std::min((wanted + strips - 1) / strips, most / strips), 1, machine.cluster);
}

}  // namespace

bool serves_columns(Numbers numbers, std::size_t width, std::size_t columns, int vectors,
                    const NormBy& norm) {
  return for_numbers(numbers, [&](auto number) {
    using T = decltype(number);
    if (width == 0 || width > kMostNumbers || width % kWide<T> != 0) return false;
    if (columns == 0 || columns % kWide<T> != 0) return false;
    if (vectors < 1 || vectors > kFewVectors) return false;
    // A cluster's blocks have less of the vectors than one that is alone.
    const std::size_t shared = shared_for<T>(static_cast<int>(width), vectors, norm, 1);
    return shared <= kMostNumbers * sizeof(T) &&
           shared + bytes_of_tiles(kLess) <= current_machine().shared;
  });
}

cudaError_t multiply_columns(const Columns& job, cudaStream_t stream) {
  const Machine machine = current_machine();
  return for_numbers(job.numbers, [&](auto number) {
    using T = decltype(number);
    if (machine.cluster > 1) {
      const int cluster = cluster_for<T>(job.width, job.columns, machine);
      return start_for<T, kWidest>(job, machine, cluster, stream);
    }
    return job.columns < machine.processors * kWider
               ? start_for<T, kNarrow>(job, machine, 1, stream)
               : start_for<T, kWider>(job, machine, 1, stream);
  });
}

}  // namespace haul::kernels::cuda
