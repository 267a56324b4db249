#include "kernels/cuda/attend.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr int kTogether = 4;  // heads whose sums a thread holds

__device__ int tokens_of(const Attend& job) {
  return job.past == nullptr ? job.room : static_cast<int>(__ldcg(job.past)) + 1;
}

__host__ __device__ int parts_of(int tokens) {
  return (tokens + kPartTokens - 1) / kPartTokens;
}

// What a part gave to a head: `size` sums, the largest score, the sum of all weights.
__device__ float* part_of(const Attend& job, int sequence, int head, int part) {
  const auto row =
      static_cast<std::size_t>((sequence * job.heads + head) * parts_of(job.room) + part);
  return job.parts + row * static_cast<std::size_t>(job.size + 2);
}

template <typename T, int kSize>
constexpr int kThreadsFor = kSize * sizeof(T) >= 512 ? 256 : 128;

// A block for each part of the tokens, kv head and sequence. A thread has eight numbers of the keys
// and values of every kRows-th token, in as many accesses as that takes.
template <typename T, int kSize>
__global__ void __launch_bounds__(kThreadsFor<T, kSize>) look(const __grid_constant__ Attend job) {
  constexpr int kThreads = kThreadsFor<T, kSize>;
  constexpr int kPieces = 8 / kWide<T>;
  constexpr int kRowLanes = kSize / kWide<T> / kPieces;
  constexpr int kRows = kThreads / kRowLanes;  // tokens side by side
  constexpr int kSteps = kPartTokens / kRows;
  __shared__ float scores[kTogether][kPartTokens];
  __shared__ float4 sums[kTogether][kRows][kSize / 4];
  let_next_begin();
  const int part = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int sequence = static_cast<int>(blockIdx.z);
  const int begin = part * kPartTokens;
  const int count = min(tokens_of(job) - begin, kPartTokens);
  if (count <= 0) return;
  after_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % kRowLanes * kWide<T>;  // of the first piece
  const int row = thread / kRowLanes;
  const auto piece = [](const T* first, int p) {
    return fresh(reinterpret_cast<const uint4*>(first) + p * kRowLanes);
  };

  const T* const keys =
      static_cast<const T*>(job.keys) + sequence * job.keys_by_batch + kv_head * job.keys_by_head;
  const T* const values = static_cast<const T*>(job.values) + sequence * job.values_by_batch +
                          kv_head * job.values_by_head;
  uint4 k[kSteps][kPieces], v[kSteps][kPieces];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int token = row + i * kRows;
    const bool there = token < count;
    const std::int64_t at = begin + token;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      k[i][p] = v[i][p] = uint4{0, 0, 0, 0};
      if (there) {
        k[i][p] = piece(keys + at * job.keys_by_token + column, p);
        v[i][p] = piece(values + at * job.values_by_token + column, p);
      }
    }
  }

  const int share = job.heads / job.kv_heads;
  for (int group = 0; group < share; group += kTogether) {
    const int heads = min(kTogether, share - group);
    const int first = kv_head * share + group;
#pragma unroll
    for (int h = 0; h < kTogether; ++h) {
      if (h >= heads) break;
      float q[kPieces][kWide<T>];
      const std::size_t at = static_cast<std::size_t>(sequence * job.heads + first + h) *
                                 static_cast<std::size_t>(kSize) +
                             static_cast<unsigned>(column);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        unpack(piece(static_cast<const T*>(job.queries) + at, p), q[p]);
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        float dot = 0;
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          float key[kWide<T>];
          unpack(k[i][p], key);
#pragma unroll
          for (int j = 0; j < kWide<T>; ++j) dot = fmaf(q[p][j], key[j], dot);
        }
        dot = sum_of_lanes(dot, kRowLanes);
        const int token = row + i * kRows;
        if (column == 0) scores[h][token] = token < count ? dot * job.scale : -INFINITY;
      }
    }
    __syncthreads();
    // A warp for each head: two scores a lane.
    const int warp = thread / kLanes;
    const int lane = thread % kLanes;
    if (warp < heads) {
      float a = scores[warp][lane];
      float b = scores[warp][lane + kLanes];
      float most = fmaxf(a, b);
      for (int step = kLanes / 2; step > 0; step /= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAll, most, step));
      }
      a = expf(a - most);
      b = expf(b - most);
      scores[warp][lane] = a;
      scores[warp][lane + kLanes] = b;
      const float weight = sum_of_lanes(a + b);
      if (lane == 0) {
        float* const to = part_of(job, sequence, first + warp, part);
        to[kSize] = most;
        to[kSize + 1] = weight;
      }
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kTogether; ++h) {
      if (h >= heads) break;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        float sum[kWide<T>] = {};
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          float value[kWide<T>];
          unpack(v[i][p], value);
          const float weight = scores[h][row + i * kRows];
#pragma unroll
          for (int j = 0; j < kWide<T>; ++j) sum[j] = fmaf(weight, value[j], sum[j]);
        }
        const int at = p * (kSize / kPieces / 4) + column / 4;
#pragma unroll
        for (int j = 0; j < kWide<T>; j += 4) {
          sums[h][row][at + j / 4] = {sum[j], sum[j + 1], sum[j + 2], sum[j + 3]};
        }
      }
    }
    __syncthreads();
    for (int i = thread; i < heads * kSize; i += kThreads) {
      const int h = i / kSize;
      const int d = i % kSize;
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum += reinterpret_cast<const float*>(sums[h][r])[d];
      part_of(job, sequence, first + h, part)[d] = sum;
    }
    __syncthreads();
  }
}

// A sum of numbers by weights, which are relative to the largest score.
struct Weighted {
  float most;
  float weight;
  float sum;

  __device__ void add(const Weighted& other) {
    const float larger = fmaxf(most, other.most);
    const float before = expf(most - larger);
    const float factor = expf(other.most - larger);
    sum = fmaf(factor, other.sum, sum * before);
    weight = fmaf(factor, other.weight, weight * before);
    most = larger;
  }
};

template <int kSize>
constexpr int kJoinersFor = kSize == 256 ? 4 : 8;

// A block for each head of each sequence. A number has several threads, each of which joins some of
// the parts, so that more of them are on their way at the same time.
template <typename T, int kSize>
__global__ void __launch_bounds__(kSize* kJoinersFor<kSize>)
    join(const __grid_constant__ Attend job) {
  constexpr int kJoiners = kJoinersFor<kSize>;
  __shared__ Weighted joined[kJoiners][kSize];
  let_next_begin();
  const int head = static_cast<int>(blockIdx.x);
  const int sequence = static_cast<int>(blockIdx.y);
  const int d = static_cast<int>(threadIdx.x) % kSize;
  const int joiner = static_cast<int>(threadIdx.x) / kSize;
  const int parts = parts_of(tokens_of(job));
  after_previous();
  Weighted own{-INFINITY, 0, 0};
#pragma unroll 4
  for (int part = joiner; part < parts; part += kJoiners) {
    const float* const from = part_of(job, sequence, head, part);
    own.add({__ldcg(from + kSize), __ldcg(from + kSize + 1), __ldcg(from + d)});
  }
  joined[joiner][d] = own;
  __syncthreads();
  if (joiner > 0) return;
#pragma unroll
  for (int other = 1; other < kJoiners; ++other) own.add(joined[other][d]);
  const auto at =
      static_cast<std::size_t>(sequence * job.heads + head) * static_cast<std::size_t>(kSize) +
      static_cast<unsigned>(d);
  static_cast<T*>(job.out)[at] = as_number<T>(own.sum / own.weight);
}

template <typename T, int kSize>
cudaError_t start_both(const Attend& job, cudaStream_t stream) {
  const dim3 parts(static_cast<unsigned>(parts_of(job.room)), static_cast<unsigned>(job.kv_heads),
                   static_cast<unsigned>(job.batch));
  const cudaError_t looked = start(look<T, kSize>, job, parts, kThreadsFor<T, kSize>, 0, stream);
  if (looked != cudaSuccess) return looked;
  const dim3 heads(static_cast<unsigned>(job.heads), static_cast<unsigned>(job.batch));
  return start(join<T, kSize>, job, heads, kSize * kJoinersFor<kSize>, 0, stream);
}

}  // namespace

bool serves_head_size(std::int64_t size) {
  return size == 64 || size == 128 || size == 256;
}

std::size_t floats_for_parts(int batch, int heads, int room, int size) {
  return static_cast<std::size_t>(batch) * static_cast<std::size_t>(heads) *
         static_cast<std::size_t>(parts_of(room)) * static_cast<std::size_t>(size + 2);
}

cudaError_t attend_one(const Attend& job, cudaStream_t stream) {
  return for_numbers(job.numbers, [&](auto number) {
    using T = decltype(number);
    switch (job.size) {
      case 64:
        return start_both<T, 64>(job, stream);
      case 128:
        return start_both<T, 128>(job, stream);
      default:
        return start_both<T, 256>(job, stream);
    }
  });
}

}  // namespace haul::kernels::cuda
