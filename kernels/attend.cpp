#include "kernels/attend.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/library.h>

#include "haul/estimate.h"
#include "kernels/own_ops.h"
#include "kernels/rotate.h"
#include "kernels/sight.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPart = 1 << 13;  // numbers of keys that are worth a thread

using Optional = std::optional<at::Tensor>;

// On GPUs cuDNN plans for every length anew, which takes as long as many tokens; the lengths here
// are new at every token.
class WithoutCudnn {
 public:
  WithoutCudnn() {
    const std::lock_guard lock(mutex_);
    if (users_++ > 0) return;
    before_ = at::globalContext().userEnabledCuDNNSDP();
    at::globalContext().setSDPUseCuDNN(false);
  }
  WithoutCudnn(const WithoutCudnn&) = delete;
  WithoutCudnn& operator=(const WithoutCudnn&) = delete;
  ~WithoutCudnn() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) at::globalContext().setSDPUseCuDNN(before_);
  }

 private:
  // One switch for all threads: the first turns it off, the last back.
  inline static std::mutex mutex_;
  inline static int users_ = 0;
  inline static bool before_ = false;
};

// From one to the next along a dimension; one of size 1 stands for all.
std::int64_t step(const at::Tensor& x, std::int64_t dimension) {
  return x.size(dimension) == 1 ? 0 : x.stride(dimension);
}

// What the heads of all sequences look at.
struct Cache {
  const at::Tensor& keys;
  const at::Tensor& values;

  template <typename T>
  SeenAs<T> of(std::int64_t b, std::int64_t kv_head) const {
    return {keys.const_data_ptr<T>() + b * keys.stride(0) + kv_head * keys.stride(1),
            values.const_data_ptr<T>() + b * values.stride(0) + kv_head * values.stride(1),
            static_cast<std::size_t>(keys.size(2)),
            static_cast<std::size_t>(keys.size(3)),
            static_cast<std::size_t>(keys.stride(2)),
            static_cast<std::size_t>(values.stride(2))};
  }
};

template <typename T>
void attend_one(const at::Tensor& q, const Cache& cache, const at::Tensor& bias, double scale,
                at::Tensor& out) {
  const std::int64_t heads = q.size(1);
  const std::int64_t size = q.size(3);
  const std::int64_t tokens = cache.keys.size(2);
  const std::int64_t share = heads / cache.keys.size(1);
  const auto* const from = q.const_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<float>();
  const std::int64_t grain = kPart / (tokens * size) + 1;
  at::parallel_for(0, q.size(0) * heads, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> room(static_cast<std::size_t>(std::min(share, end - begin) * tokens));
    // Those that look at the same keys go together.
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t b = i / heads;
      const std::int64_t h = i % heads;
      const std::int64_t next = std::min(end, b * heads + (h / share + 1) * share);
      OneToken token{from + i * size, static_cast<std::size_t>(next - i), static_cast<float>(scale),
                     nullptr, 0};
      if (bias.defined()) {
        token.bias = bias.const_data_ptr<float>() + b * step(bias, 0) + h * step(bias, 1);
        token.bias_stride = static_cast<std::size_t>(step(bias, 1));
      }
      look(token, cache.of<T>(b, h / share), room.data(), to + i * size);
      i = next;
    }
  });
}

void attend_many(const at::Tensor& q, const Cache& cache, bool causal, double scale,
                 at::Tensor& out) {
  const std::int64_t heads = q.size(1);
  const std::int64_t length = q.size(2);
  const std::int64_t size = q.size(3);
  const std::int64_t share = heads / cache.keys.size(1);
  const auto wide = static_cast<std::int64_t>(tile_size());
  const std::int64_t tiles = (length + wide - 1) / wide;
  const auto* const from = q.const_data_ptr<float>();
  auto* const to = out.mutable_data_ptr<float>();
  at::parallel_for(0, q.size(0) * heads * tiles, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> room(tile_room(cache.of<float>(0, 0)));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / (heads * tiles);
      const std::int64_t h = i / tiles % heads;
      const std::int64_t t = i % tiles * wide;
      const Seen seen = cache.of<float>(b, h / share);
      const Tile tile{from + b * q.stride(0) + h * q.stride(1) + t * q.stride(2),
                      static_cast<std::size_t>(q.stride(2)),
                      static_cast<std::size_t>(std::min(wide, length - t)),
                      causal ? seen.tokens - static_cast<std::size_t>(length - t - 1) : seen.tokens,
                      static_cast<float>(scale),
                      static_cast<std::size_t>(heads * size)};
      look_all(tile, seen, room.data(), to + ((b * length + t) * heads + h) * size);
    }
  });
}

at::Tensor own_attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                      const Optional& bias, const Optional& /*past*/, const Optional& /*slopes*/,
                      bool causal, double scale) {
  const at::Tensor q = as_floats(queries);
  at::Tensor out = at::empty({q.size(0), q.size(2), q.size(1) * q.size(3)}, q.options());
  if (q.size(2) == 1) {
    const auto work = keys.scalar_type() == at::kFloat  ? attend_one<float>
                      : keys.scalar_type() == at::kHalf ? attend_one<at::Half>
                                                        : attend_one<at::BFloat16>;
    work(q, {keys, values}, bias ? as_floats(*bias) : at::Tensor(), scale, out);
  } else {
    attend_many(q, {keys, values}, causal, scale, out);
  }
  return out.to(queries.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def(
      "attend(Tensor queries, Tensor keys, Tensor values, Tensor? bias, Tensor? past, "
      "Tensor? slopes, bool causal, float scale) -> Tensor");
  library.def(
      "keep_and_attend(Tensor queries, Tensor keys, Tensor values, Tensor? cosine, Tensor? sine, "
      "Tensor(a!) seen_keys, Tensor(b!) seen_values, Tensor? past, Tensor? slopes, float scale) "
      "-> Tensor");
}
TORCH_LIBRARY_IMPL(haul, CPU, library) {
  library.impl("attend", own_attend);
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("attend", torch::CppFunction::makeFallthrough());
  library.impl("keep_and_attend", torch::CppFunction::makeFallthrough());
}

Optional optional(const at::Tensor& some) {
  return some.defined() ? Optional(some) : std::nullopt;
}

// To add to scores, where nobody looks at anybody yet.
at::Tensor blind(std::vector<std::int64_t> sizes, const at::TensorOptions& options) {
  // In rows that lie so many numbers apart: torch's kernels for GPUs copy others.
  constexpr std::int64_t kAligned = 8;
  sizes.back() = (sizes.back() + kAligned - 1) / kAligned * kAligned;
  return at::full(sizes, -INFINITY, options);
}

// What a mask adds to scores.
at::Tensor as_bias(const at::Tensor& mask, at::ScalarType dtype) {
  if (mask.scalar_type() != at::kBool) return mask;
  return blind(mask.sizes().vec(), mask.options().dtype(dtype))
      .narrow(-1, 0, mask.size(-1))
      .masked_fill_(mask, 0);
}

// Causally, after others, a few tokens at a time: torch wants a tensor of who looks at whom.
at::Tensor look_back(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                     double scale) {
  const std::int64_t batch = queries.size(0);
  const std::int64_t tokens = queries.size(2);
  const std::int64_t times = (tokens + kTokensThatLookBack - 1) / kTokensThatLookBack;
  const std::int64_t each = (tokens + times - 1) / times;
  std::vector<at::Tensor> parts;
  for (std::int64_t t = 0; t < tokens; t += each) {
    const std::int64_t count = std::min(each, tokens - t);
    const std::int64_t seen = keys.size(2) - (tokens - t - count);
    const at::Tensor bias =
        blind({count, seen}, queries.options()).triu_(seen - count + 1).narrow(1, 0, seen);
    parts.push_back(
        at::scaled_dot_product_attention(queries.narrow(2, t, count), keys.narrow(2, 0, seen),
                                         values.narrow(2, 0, seen), bias, 0.0, false, scale)
            .transpose(1, 2)
            .reshape({batch, count, -1}));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

// Whether GPUs have an operator for it: of a single token that looks at all before it.
bool serves_on_gpu(const at::Tensor& queries, const Looking& looking) {
  return queries.is_cuda() && queries.size(2) == 1 && !looking.mask.defined();
}

}  // namespace

at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                  const Looking& looking, double scale) {
  const bool one = queries.size(2) == 1;
  const bool serves =
      keys.stride(-1) == 1 && values.stride(-1) == 1 &&
      (queries.is_cpu()
           ? !looking.past.defined() && !looking.slopes.defined() &&
                 (one || (queries.scalar_type() == at::kFloat && !looking.mask.defined())) &&
                 has_own_ops({&queries, &keys, &values, &looking.mask})
           : serves_on_gpu(queries, looking) && has_own_ops({&queries, &keys, &values}));
  if (!serves) return plain_attend(queries, keys, values, looking, scale);
  static const auto op = own_op<decltype(own_attend)>("haul::attend");
  return op.call(queries, keys, values, optional(looking.mask), optional(looking.past),
                 optional(looking.slopes), looking.causal, scale);
}

at::Tensor keep_and_attend(const at::Tensor& queries, const KeysAndValues& added,
                           const Angles& angles, const KeysAndValues& seen, const Looking& looking,
                           double scale) {
  const bool serves = serves_on_gpu(queries, looking) && seen.keys.stride(-1) == 1 &&
                      seen.values.stride(-1) == 1 &&
                      has_own_ops({&queries, &added.keys, &added.values, &angles.cosine,
                                   &angles.sine, &seen.keys, &seen.values});
  if (!serves) return keep_then_attend(queries, added, angles, seen, looking, scale);
  using Op = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const Optional&,
                        const Optional&, at::Tensor&, at::Tensor&, const Optional&, const Optional&,
                        double);
  static const auto op = own_op<Op>("haul::keep_and_attend");
  at::Tensor keys = seen.keys;
  at::Tensor values = seen.values;
  return op.call(queries, added.keys, added.values, optional(angles.cosine), optional(angles.sine),
                 keys, values, optional(looking.past), optional(looking.slopes), scale);
}

at::Tensor keep_then_attend(const at::Tensor& queries, const KeysAndValues& added,
                            const Angles& angles, const KeysAndValues& seen, const Looking& looking,
                            double scale) {
  const auto place = [&](const at::Tensor& all) {
    const std::int64_t tokens = queries.size(2);
    return looking.past.defined() ? all : all.narrow(2, all.size(2) - tokens, tokens);
  };
  const at::Tensor kept_keys = place(seen.keys);
  const at::Tensor kept_values = place(seen.values);
  const NewTokens tokens{added.keys, added.values, kept_keys, kept_values, looking.past};
  at::Tensor turned = queries;
  if (angles.cosine.defined()) {
    turned = rotate_into(queries, tokens, angles.cosine, angles.sine);
  } else {
    keep(tokens, added.keys);
  }
  return attend(turned, seen.keys, seen.values, looking, scale);
}

at::Tensor place_bias(const at::Tensor& slopes, const at::Tensor& places, at::ScalarType dtype) {
  return (slopes.view({1, -1, 1, 1}) * places.unsqueeze(1).unsqueeze(1)).to(dtype);
}

at::Tensor mask_of(const Looking& looking, const at::Tensor& keys) {
  const bool biased = looking.slopes.defined();
  if (!biased && !looking.past.defined()) return {};
  const at::Tensor places =
      at::arange(keys.size(2), keys.options().dtype(at::kLong)).unsqueeze(0);  // (1, S)
  at::Tensor bias = biased ? place_bias(looking.slopes, places, keys.scalar_type()) : at::Tensor();
  if (!looking.past.defined()) return bias;
  const at::Tensor seen = (places <= looking.past).view({1, 1, 1, -1});
  return biased ? bias.masked_fill(seen.logical_not(), -INFINITY) : seen;
}

at::Tensor plain_attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                        const Looking& looking, double scale) {
  const WithoutCudnn guard;
  const std::int64_t batch = queries.size(0);
  const std::int64_t heads = queries.size(1);
  const std::int64_t tokens = queries.size(2);
  const std::int64_t head_size = queries.size(3);
  const std::int64_t kv_heads = keys.size(1);
  const std::int64_t share = heads / kv_heads;
  const Optional mask = optional(looking.mask.defined() ? looking.mask : mask_of(looking, keys));
  if (share > 1 && tokens == 1 && (!mask || mask->size(1) == 1)) {
    // The heads that share keys are as good as tokens of one head: nothing is copied.
    const at::Tensor grouped = queries.reshape({batch, kv_heads, share, head_size});
    return at::scaled_dot_product_attention(grouped, keys, values, mask, 0.0, false, scale)
        .reshape({batch, 1, heads * head_size});
  }
  const auto repeated = [&](const at::Tensor& x) {  // (B, K, S, D) to (B, H, S, D)
    if (share == 1) return x;
    at::Tensor all = x.unsqueeze(2)
                         .expand({batch, kv_heads, share, x.size(2), x.size(3)})
                         .reshape({batch, heads, x.size(2), x.size(3)});
    // Of a single kv head it is a view in which heads lie 0 apart. If then a single token is left
    // over, as the last of 65 is, torch's kernels for GPUs compute something else.
    return all.is_cuda() ? all.contiguous() : all;
  };
  if (looking.causal && tokens < keys.size(2)) {
    return look_back(queries, repeated(keys), repeated(values), scale);
  }
  const Optional bias = mask && queries.is_cuda() ? as_bias(*mask, queries.scalar_type()) : mask;
  return at::scaled_dot_product_attention(queries, repeated(keys), repeated(values), bias, 0.0,
                                          looking.causal, scale)
      .transpose(1, 2)
      .reshape({batch, tokens, heads * head_size});
}

}  // namespace haul::kernels
