#include "kernels/cuda/attend.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/turn.cuh"

namespace haul::kernels::cuda {
namespace {

constexpr int kTogether = 4;  // heads whose sums a thread holds

__device__ int tokens_of(const Attend& job) {
  return job.past == nullptr ? job.room : static_cast<int>(__ldcg(job.past)) + 1;
}

// What a kernel is made for that serves heads of a size: zeros stand behind their rows.
int made_for(int size) {
  return size <= 64 ? 64 : size <= 128 ? 128 : 256;
}

__host__ __device__ int parts_of(int tokens) {
  return (tokens + kPartTokens - 1) / kPartTokens;
}

// Heads that share keys, by as many as a block has.
__host__ __device__ int groups_of(int share) {
  return (share + kTogether - 1) / kTogether;
}

// What a part gave to a head: kSize sums, the largest score, the sum of all weights.
template <int kSize>
__device__ float* part_of(const Attend& job, int sequence, int head, int part) {
  const auto row =
      static_cast<std::size_t>((sequence * job.queries.heads + head) * parts_of(job.room) + part);
  return job.parts + row * static_cast<std::size_t>(kSize + 2);
}

// A sum of numbers by weights, which are relative to the largest score.
struct Weighted {
  float most = -INFINITY;
  float weight = 0;
  float sum = 0;

  __device__ void add(const Weighted& other) {
    const float larger = fmaxf(most, other.most);
    const float before = expf(most - larger);
    const float factor = expf(other.most - larger);
    sum = fmaf(factor, other.sum, sum * before);
    weight = fmaf(factor, other.weight, weight * before);
    most = larger;
  }
};

template <typename T, int kSize>
constexpr int kThreadsFor = kSize * sizeof(T) >= 512 ? 256 : 128;
template <int kSize>
constexpr int kRowLanesFor = kSize / 8;  // a thread has eight numbers of a row

// Threads that join the parts of a number, each some of them; and the most blocks of a cluster,
// which join them to the same bits because each has one part.
template <int kSize>
constexpr int kJoinersFor = kSize == 256 ? 4 : 8;

// The shared memory of a block.
template <typename T, int kSize>
struct LookRoom {
  static constexpr int kRows = kThreadsFor<T, kSize> / kRowLanesFor<kSize>;
  float4 sums[kTogether][kRows][kSize / 4];
  uint4 queries[kTogether][kSize / kWide<T>];
  uint4 key[kSize / kWide<T>], value[kSize / kWide<T>];  // of the fresh token
  float scores[kTogether][kPartTokens];
  // What the cluster's parts gave: the largest scores and the sums of weights of all heads, and the
  // sums that are joined here.
  Weighted of_parts[kJoinersFor<kSize>][kTogether];
  float sums_of_parts[kJoinersFor<kSize>][kTogether * kSize];
};

// A block for each part of the tokens, some heads that share keys, and sequence. A thread has eight
// numbers of the keys and values of every kRows-th token, in as many accesses as that takes. Where
// all parts are one cluster, it joins them. Heads that are shorter than kSize, and slopes, have a
// kernel that is not plain: in one for all they cost the others 2 % of a model's decoding.
template <typename T, int kSize, bool kPlain>
__global__ void __launch_bounds__(kThreadsFor<T, kSize>, kThreadsFor<T, kSize> == 128 ? 3 : 1)
    look(const __grid_constant__ Attend job) {
  using Room = LookRoom<T, kSize>;
  constexpr int kThreads = kThreadsFor<T, kSize>;
  constexpr int kPieces = 8 / kWide<T>;
  constexpr int kRowLanes = kRowLanesFor<kSize>;
  constexpr int kRows = Room::kRows;  // tokens side by side
  constexpr int kSteps = kPartTokens / kRows;
  auto& shared = *reinterpret_cast<Room*>(dynamic_shared());
  let_next_begin();
  const int part = static_cast<int>(blockIdx.x);
  const int share = job.queries.heads / job.keys.heads;
  const int groups = groups_of(share);
  const int kv_head = static_cast<int>(blockIdx.y) / groups;
  const int group = static_cast<int>(blockIdx.y) % groups;
  const int first = kv_head * share + group * kTogether;
  const int heads = min(kTogether, share - group * kTogether);
  const int sequence = static_cast<int>(blockIdx.z);
  const int blocks = cluster_size();
  const int tokens = tokens_of(job);
  const int begin = part * kPartTokens;
  const int count = min(tokens - begin, kPartTokens);
  const bool joins = static_cast<int>(gridDim.x) == blocks;
  if (count <= 0 && !joins) return;
  const bool is_fresh = job.fresh.keys.data != nullptr;
  const int last = tokens - 1 - begin;  // the token that looks, if it is here
  const int kept = is_fresh ? min(count, last) : count;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % kRowLanes * kWide<T>;  // of the first piece
  const int row = thread / kRowLanes;

  // Before the keys, behind which they would arrive.
  float slopes[kTogether] = {};
  if (!kPlain && job.slopes != nullptr) {
#pragma unroll
    for (int h = 0; h < kTogether; ++h) {
      if (h < heads) slopes[h] = job.slopes[first + h];
    }
  }
  if (joins) come_to_cluster();
  if (!is_fresh) after_previous();
  uint4 k[kSteps][kPieces], v[kSteps][kPieces];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int token = row + i * kRows;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      k[i][p] = v[i][p] = uint4{0, 0, 0, 0};
      const bool is_there = kPlain || column + p * kRowLanes * kWide<T> < job.size;
      if (token >= kept || !is_there) continue;
      const auto piece = [&](const HeadRows<void>& rows) {
        const T* const at = row_of<const T>(rows, sequence, kv_head, begin + token) + column;
        return fresh(reinterpret_cast<const uint4*>(at) + p * kRowLanes);
      };
      k[i][p] = piece(job.keys);
      v[i][p] = piece(job.values);
    }
  }
  if (is_fresh) after_previous();

  // A thread turns the same element of several heads.
  const int element = thread % kSize;
  const int of_head = thread / kSize;
  const bool inside = kPlain || element < job.size;
  const T zero = as_number<T>(0);
  const std::int64_t angle = sequence * job.fresh.of_batch;
  const Turn<T> turn(element, job.fresh.turning, static_cast<const T*>(job.fresh.cosine) + angle,
                     static_cast<const T*>(job.fresh.sine) + angle);
  const bool keeps = is_fresh && last >= 0 && last < kPartTokens;
  if (keeps && of_head == 0) {
    const T* const values = row_of<const T>(job.fresh.values, sequence, kv_head, 0);
    const T key = inside ? turn(row_of<const T>(job.fresh.keys, sequence, kv_head, 0)) : zero;
    const T value = inside ? fresh(values + element) : zero;
    reinterpret_cast<T*>(shared.key)[element] = key;
    reinterpret_cast<T*>(shared.value)[element] = value;
    if (group == 0 && inside) {
      row_of<T>(job.keys, sequence, kv_head, tokens - 1)[element] = key;
      row_of<T>(job.values, sequence, kv_head, tokens - 1)[element] = value;
    }
  }

#pragma unroll
  for (int from = 0; from < kTogether; from += kThreads / kSize) {
    const int h = from + of_head;
    if (h >= heads) continue;
    reinterpret_cast<T*>(shared.queries[h])[element] =
        inside ? turn(row_of<const T>(job.queries, sequence, first + h, 0)) : zero;
  }
  __syncthreads();
  if (keeps) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (row + i * kRows != last) continue;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        k[i][p] = shared.key[column / kWide<T> + p * kRowLanes];
        v[i][p] = shared.value[column / kWide<T> + p * kRowLanes];
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kTogether; ++h) {
    if (h >= heads) break;
    float q[kPieces][kWide<T>];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      unpack<T>(shared.queries[h][column / kWide<T> + p * kRowLanes], q[p]);
    }
    // From all that of the token that looks is taken: no weight changes, and what is added to a
    // score is not so large that it costs digits.
    const auto bias_of = [&](int place) {
      return rounded<T>(__fmul_rn(slopes[h], static_cast<float>(place)));
    };
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      float dot = 0;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        float key[kWide<T>];
        unpack<T>(k[i][p], key);
#pragma unroll
        for (int j = 0; j < kWide<T>; ++j) dot = fmaf(q[p][j], key[j], dot);
      }
      dot = sum_of_lanes(dot, kRowLanes);
      const int token = row + i * kRows;
      if (column == 0) {
        const float score =
            kPlain ? dot * job.scale
                   : fmaf(dot, job.scale, bias_of(begin + token) - bias_of(tokens - 1));
        shared.scores[h][token] = token < count ? score : -INFINITY;
      }
    }
  }
  __syncthreads();
  const auto room_of = [](int rank) { return reinterpret_cast<Room*>(shared_of(rank)); };
  if (joins) wait_until_all_came();
  // A warp for each head: two scores a lane.
  const int warp = thread / kLanes;
  const int lane = thread % kLanes;
  if (warp < heads) {
    float a = shared.scores[warp][lane];
    float b = shared.scores[warp][lane + kLanes];
    float most = fmaxf(a, b);
    for (int step = kLanes / 2; step > 0; step /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAll, most, step));
    }
    a = expf(a - most);
    b = expf(b - most);
    shared.scores[warp][lane] = a;
    shared.scores[warp][lane + kLanes] = b;
    const float weight = sum_of_lanes(a + b);
    if (joins) {
      if (lane < blocks) room_of(lane)->of_parts[part][warp] = {most, weight, 0};
    } else if (lane == 0) {
      float* const to = part_of<kSize>(job, sequence, first + warp, part);
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
        unpack<T>(v[i][p], value);
        const float weight = shared.scores[h][row + i * kRows];
#pragma unroll
        for (int j = 0; j < kWide<T>; ++j) sum[j] = fmaf(weight, value[j], sum[j]);
      }
      const int at = p * (kSize / kPieces / 4) + column / 4;
#pragma unroll
      for (int j = 0; j < kWide<T>; j += 4) {
        shared.sums[h][row][at + j / 4] = {sum[j], sum[j + 1], sum[j + 2], sum[j + 3]};
      }
    }
  }
  __syncthreads();
  for (int i = thread; i < heads * kSize; i += kThreads) {
    const int h = i / kSize;
    const int d = i % kSize;
    float sum = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum += reinterpret_cast<const float*>(shared.sums[h][r])[d];
    if (joins) {
      room_of(i / kThreads % blocks)->sums_of_parts[part][i] = sum;
    } else {
      part_of<kSize>(job, sequence, first + h, part)[d] = sum;
    }
  }
  if (!joins) return;
  wait_for_cluster();
  const int parts = parts_of(tokens);
  for (int i = part * kThreads + thread; i < heads * kSize; i += blocks * kThreads) {
    const int h = i / kSize;
    const int d = i % kSize;
    if (!kPlain && d >= job.size) continue;
    Weighted all;
    for (int other = 0; other < parts; ++other) {
      const Weighted& of = shared.of_parts[other][h];
      all.add({of.most, of.weight, shared.sums_of_parts[other][i]});
    }
    const auto at = static_cast<std::size_t>(
        (sequence * job.queries.heads + first + h) * (kPlain ? kSize : job.size) + d);
    static_cast<T*>(job.out)[at] = as_number<T>(all.sum / all.weight);
  }
}

// A block for each head of each sequence. A number has several threads, so that more parts are on
// their way at the same time.
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
  Weighted own;
#pragma unroll 8
  for (int part = joiner; part < parts; part += kJoiners) {
    const float* const from = part_of<kSize>(job, sequence, head, part);
    own.add({__ldcg(from + kSize), __ldcg(from + kSize + 1), __ldcg(from + d)});
  }
  joined[joiner][d] = own;
  __syncthreads();
  if (joiner > 0 || d >= job.size) return;
#pragma unroll
  for (int other = 1; other < kJoiners; ++other) own.add(joined[other][d]);
  const auto at = static_cast<std::size_t>((sequence * job.queries.heads + head) * job.size + d);
  static_cast<T*>(job.out)[at] = as_number<T>(own.sum / own.weight);
}

// Blocks for the parts of a room, which join them among themselves; 0: there are too many.
int cluster_for(int room, int size) {
  const int joiners = size == 256 ? kJoinersFor<256> : kJoinersFor<64>;
  const int most = current_machine().cluster;
  int blocks = 1;
  while (blocks < parts_of(room)) blocks *= 2;
  return blocks <= (most < joiners ? most : joiners) ? blocks : 0;
}

template <typename T, int kSize>
cudaError_t start_for(const Attend& job, cudaStream_t stream) {
  const int cluster = cluster_for(job.room, kSize);
  const int groups = job.keys.heads * groups_of(job.queries.heads / job.keys.heads);
  const dim3 parts(static_cast<unsigned>(cluster > 0 ? cluster : parts_of(job.room)),
                   static_cast<unsigned>(groups), static_cast<unsigned>(job.batch));
  const bool plain = job.size == kSize && job.slopes == nullptr;
  const cudaError_t looked =
      start(plain ? look<T, kSize, true> : look<T, kSize, false>, job, parts, kThreadsFor<T, kSize>,
            sizeof(LookRoom<T, kSize>), stream, cluster > 0 ? cluster : 1);
  if (looked != cudaSuccess || cluster > 0) return looked;
  const dim3 heads(static_cast<unsigned>(job.queries.heads), static_cast<unsigned>(job.batch));
  return start(join<T, kSize>, job, heads, kSize * kJoinersFor<kSize>, 0, stream);
}

}  // namespace

bool serves_head_size(std::int64_t size) {
  return size > 0 && size <= 256 && size % 8 == 0;
}

std::size_t floats_for_parts(const Attend& job) {
  const int size = made_for(job.size);
  if (cluster_for(job.room, size) > 0) return 0;
  return static_cast<std::size_t>(job.batch) * static_cast<std::size_t>(job.queries.heads) *
         static_cast<std::size_t>(parts_of(job.room)) * static_cast<std::size_t>(size + 2);
}

cudaError_t attend_one(const Attend& job, cudaStream_t stream) {
  return for_numbers(job.numbers, [&](auto number) {
    using T = decltype(number);
    switch (made_for(job.size)) {
      case 64:
        return start_for<T, 64>(job, stream);
      case 128:
        return start_for<T, 128>(job, stream);
      default:
        return start_for<T, 256>(job, stream);
    }
  });
}

}  // namespace haul::kernels::cuda
