#include "kernels/rotate.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "kernels/own_ops.h"
#include "kernels/row_math.h"

namespace haul::kernels {
namespace {

constexpr std::int64_t kPart = 1 << 13;  // numbers that are worth a thread

// The rows of heads of a tensor (B, H, T, D).
template <typename T>
struct Heads {
  T* data;
  std::int64_t count, size, by_batch, by_head, by_token;

  Heads(T* first, const at::Tensor& x)
      : data(first),
        count(x.size(1)),
        size(x.size(3)),
        by_batch(x.stride(0)),
        by_head(x.stride(1)),
        by_token(x.stride(2)) {}
  T* row(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data + b * by_batch + h * by_head + t * by_token;
  }
};

// The angles of one token.
struct Angles {
  const float* cosine;
  const float* sine;
  std::int64_t size;
};

void turn(const float* x, const Angles& angles, std::vector<float>& /*room*/, float* out) {
  turned_row(x, angles.cosine, angles.sine, static_cast<std::size_t>(angles.size), out);
}

template <typename T>
void turn(const T* x, const Angles& angles, std::vector<float>& room, T* out) {
  room.assign(x, x + angles.size);
  turn(room.data(), angles, room, room.data());
  std::transform(room.begin(), room.end(), out, [](float value) { return static_cast<T>(value); });
}

template <typename T>
void turn_heads(const Heads<const T>& from, const Heads<T>& to, std::int64_t b, std::int64_t t,
                const Angles& angles, std::vector<float>& room) {
  for (std::int64_t h = 0; h < from.count; ++h) {
    const T* const x = from.row(b, h, t);
    T* const out = to.row(b, h, t);
    turn(x, angles, room, out);
    std::copy(x + angles.size, x + from.size, out + angles.size);
  }
}

template <typename T>
void rotate_all(const at::Tensor& queries, const NewTokens& tokens, const at::Tensor& cosine,
                const at::Tensor& sine, at::Tensor& out) {
  const Heads<const T> q(queries.const_data_ptr<T>(), queries);
  const Heads<const T> k(tokens.keys.const_data_ptr<T>(), tokens.keys);
  const Heads<const T> v(tokens.values.const_data_ptr<T>(), tokens.values);
  const Heads<T> turned(out.mutable_data_ptr<T>(), out);
  const Heads<T> kept_k(tokens.kept_keys.mutable_data_ptr<T>(), tokens.kept_keys);
  const Heads<T> kept_v(tokens.kept_values.mutable_data_ptr<T>(), tokens.kept_values);
  const std::int64_t length = queries.size(2);
  const std::int64_t turning = cosine.size(-1);
  const std::int64_t of_batch = cosine.size(0) == 1 ? 0 : length * turning;
  const std::int64_t of_token = (q.count + 2 * k.count) * q.size;
  at::parallel_for(0, queries.size(0) * length, kPart / of_token + 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     std::vector<float> room;
                     for (std::int64_t i = begin; i < end; ++i) {
                       const std::int64_t b = i / length;
                       const std::int64_t t = i % length;
                       const std::int64_t at = b * of_batch + t * turning;
                       const Angles angles{cosine.const_data_ptr<float>() + at,
                                           sine.const_data_ptr<float>() + at, turning};
                       turn_heads(q, turned, b, t, angles, room);
                       turn_heads(k, kept_k, b, t, angles, room);
                       for (std::int64_t h = 0; h < v.count; ++h) {
                         std::copy_n(v.row(b, h, t), v.size, kept_v.row(b, h, t));
                       }
                     }
                   });
}

// Rows of heads lie as they are.
at::Tensor with_whole_rows(const at::Tensor& x) {
  return x.stride(-1) == 1 ? x : x.contiguous();
}

at::Tensor own_rotate_into(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const at::Tensor& cosine,
                           const at::Tensor& sine, at::Tensor& kept_keys, at::Tensor& kept_values,
                           const std::optional<at::Tensor>& /*past*/) {
  const at::Tensor q = with_whole_rows(queries);
  const at::Tensor k = with_whole_rows(keys);
  const at::Tensor v = with_whole_rows(values);
  at::Tensor out = at::empty(q.sizes(), q.options());
  const NewTokens tokens{k, v, kept_keys, kept_values};
  const auto work = q.scalar_type() == at::kFloat  ? rotate_all<float>
                    : q.scalar_type() == at::kHalf ? rotate_all<at::Half>
                                                   : rotate_all<at::BFloat16>;
  work(q, tokens, as_floats(cosine), as_floats(sine), out);
  return out;
}

TORCH_LIBRARY_FRAGMENT(haul, library) {
  library.def(
      "rotate_into(Tensor queries, Tensor keys, Tensor values, Tensor cosine, Tensor sine, "
      "Tensor(a!) kept_keys, Tensor(b!) kept_values, Tensor? past) -> Tensor");
  library.def(
      "keep(Tensor keys, Tensor values, Tensor(a!) kept_keys, Tensor(b!) kept_values, "
      "Tensor past) -> ()");
}
TORCH_LIBRARY_IMPL(haul, CPU, library) {
  library.impl("rotate_into", own_rotate_into);
}
TORCH_LIBRARY_IMPL(haul, Autograd, library) {
  library.impl("rotate_into", torch::CppFunction::makeFallthrough());
  library.impl("keep", torch::CppFunction::makeFallthrough());
}

}  // namespace

at::Tensor rotated(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  const std::int64_t size = cosine.size(-1);
  const at::Tensor turning = size == x.size(-1) ? x : x.narrow(-1, 0, size);
  const at::Tensor half =
      at::cat({turning.narrow(-1, size / 2, size / 2).neg(), turning.narrow(-1, 0, size / 2)}, -1);
  at::Tensor result = (turning * cosine.unsqueeze(1)).add_(half * sine.unsqueeze(1));
  if (size == x.size(-1)) return result;
  return at::cat({result, x.narrow(-1, size, x.size(-1) - size)}, -1);
}

at::Tensor rotate_into(const at::Tensor& queries, const NewTokens& tokens, const at::Tensor& cosine,
                       const at::Tensor& sine) {
  const bool serves = has_own_ops({&queries, &tokens.keys, &tokens.values, &cosine,
                                   &tokens.kept_keys, &tokens.kept_values}) &&
                      tokens.kept_keys.stride(-1) == 1 && tokens.kept_values.stride(-1) == 1 &&
                      !(tokens.past.defined() && queries.is_cpu());
  if (!serves) return plain_rotate_into(queries, tokens, cosine, sine);
  static const auto op = own_op<decltype(own_rotate_into)>("haul::rotate_into");
  at::Tensor kept_keys = tokens.kept_keys;
  at::Tensor kept_values = tokens.kept_values;
  return op.call(queries, tokens.keys, tokens.values, cosine, sine, kept_keys, kept_values,
                 tokens.past.defined() ? std::optional(tokens.past) : std::nullopt);
}

void keep(const NewTokens& tokens, const at::Tensor& keys) {
  if (!tokens.past.defined()) {
    tokens.kept_keys.copy_(keys);
    tokens.kept_values.copy_(tokens.values);
    return;
  }
  at::Tensor kept_keys = tokens.kept_keys;
  at::Tensor kept_values = tokens.kept_values;
  if (keys.is_cuda() && has_own_ops({&keys, &tokens.values, &kept_keys, &kept_values}) &&
      kept_keys.stride(-1) == 1 && kept_values.stride(-1) == 1) {
    using Keep =
        void(const at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const at::Tensor&);
    static const auto op = own_op<Keep>("haul::keep");
    op.call(keys, tokens.values, kept_keys, kept_values, tokens.past);
    return;
  }
  const at::Tensor places =
      at::arange(keys.size(2), tokens.past.options()).add_(tokens.past.view({1}));
  kept_keys.index_copy_(2, places, keys);
  kept_values.index_copy_(2, places, tokens.values);
}

at::Tensor plain_rotate_into(const at::Tensor& queries, const NewTokens& tokens,
                             const at::Tensor& cosine, const at::Tensor& sine) {
  at::Tensor result = rotated(queries, cosine, sine);
  keep(tokens, rotated(tokens.keys, cosine, sine));
  return result;
}

}  // namespace haul::kernels
