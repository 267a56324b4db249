#include "kernels/rotate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace haul::kernels {
namespace {

struct Case {
  std::int64_t batch, heads, kv_heads, tokens, size, turning;
  bool one_place = true;  // all sequences have the same angles
};

// As projections give them: (B, T, H * D).
at::Tensor heads_of(std::int64_t heads, const Case& item, at::ScalarType type) {
  return at::randn({item.batch, item.tokens, heads * item.size})
      .to(type)
      .view({item.batch, item.tokens, heads, item.size})
      .transpose(1, 2);
}

void expect_the_same(const Case& item, at::ScalarType type) {
  const at::Tensor queries = heads_of(item.heads, item, type);
  const at::Tensor keys = heads_of(item.kv_heads, item, type);
  const at::Tensor values = heads_of(item.kv_heads, item, type);
  const std::int64_t places = item.one_place ? 1 : item.batch;
  const at::Tensor angles = 10 * at::randn({places, item.tokens, item.turning});
  const at::Tensor cosine = angles.cos().to(type);
  const at::Tensor sine = angles.sin().to(type);
  // A cache with tokens before and behind.
  const auto room = [&] {
    return at::zeros({item.batch, item.kv_heads, item.tokens + 5, item.size}, type);
  };
  const at::Tensor rooms[] = {room(), room(), room(), room()};
  const auto part = [&](const at::Tensor& whole) { return whole.narrow(2, 3, item.tokens); };
  const at::Tensor own =
      rotate_into(queries, {keys, values, part(rooms[0]), part(rooms[1])}, cosine, sine);
  const at::Tensor plain =
      plain_rotate_into(queries, {keys, values, part(rooms[2]), part(rooms[3])}, cosine, sine);
  EXPECT_EQ(own.scalar_type(), type);
  const double most = type == at::kFloat ? 1e-6 : 0x1p-5;
  EXPECT_TRUE(at::allclose(own, plain, most, most));
  EXPECT_TRUE(at::allclose(rooms[0], rooms[2], most, most));
  EXPECT_TRUE(rooms[1].equal(rooms[3]));
}

TEST(RotateInto, IsTheSameAsOfTorchsOps) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    expect_the_same({1, 9, 3, 1, 64, 64}, type);
    expect_the_same({1, 4, 4, 50, 64, 64}, type);
    expect_the_same({3, 4, 2, 7, 16, 16, false}, type);
    expect_the_same({3, 4, 2, 1, 16, 6, false}, type);
    expect_the_same({2, 2, 1, 5, 10, 10}, type);
  }
}

TEST(RotateInto, TakesHeadsWhoseElementsLieApart) {
  const at::Tensor x = at::randn({1, 2, 8, 4}).transpose(2, 3);
  const at::Tensor angles = at::randn({1, 4, 8});
  const at::Tensor keys = at::zeros({1, 2, 4, 8});
  const at::Tensor values = at::zeros({1, 2, 4, 8});
  const at::Tensor own = rotate_into(x, {x, x, keys, values}, angles.cos(), angles.sin());
  EXPECT_TRUE(at::allclose(own, rotated(x, angles.cos(), angles.sin())));
  EXPECT_TRUE(own.equal(keys));
  EXPECT_TRUE(values.equal(x));
}

}  // namespace
}  // namespace haul::kernels
