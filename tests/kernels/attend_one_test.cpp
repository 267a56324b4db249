#include "kernels/attend_one.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace haul::kernels {
namespace {

struct Case {
  std::int64_t batch, heads, kv_heads, tokens, size;
};

constexpr Case kCases[] = {{1, 9, 3, 1, 64},   {1, 9, 3, 140, 64}, {2, 4, 4, 33, 16},
                           {3, 8, 1, 1000, 8}, {2, 6, 2, 7, 5},    {1, 1, 1, 3, 1}};

// A part of a cache with room for more.
at::Tensor kept(const Case& item, at::ScalarType type) {
  return at::randn({item.batch, item.kv_heads, item.tokens + 9, item.size})
      .to(type)
      .narrow(2, 0, item.tokens);
}

void expect_the_same(const Case& item, at::ScalarType type) {
  const at::Tensor queries = (2 * at::randn({item.batch, item.heads, 1, item.size})).to(type);
  const at::Tensor keys = kept(item, type);
  const at::Tensor values = kept(item, type);
  const at::Tensor biases[] = {{},
                               at::randn({1, item.heads, 1, item.tokens}).to(type),
                               at::randn({item.batch, 1, 1, item.tokens}).to(type)};
  for (const at::Tensor& bias : biases) {
    const at::Tensor own = attend_one(queries, keys, values, bias, 0.3);
    const at::Tensor plain = plain_attend_one(queries, keys, values, bias, 0.3);
    EXPECT_EQ(own.sizes(), plain.sizes());
    EXPECT_EQ(own.scalar_type(), type);
    const double most = type == at::kFloat ? 1e-5 : 0x1p-6;
    EXPECT_TRUE(at::allclose(own, plain, most, most)) << item.tokens << " tokens";
  }
}

TEST(AttendOne, IsTheSameAsOfTorchsOps) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Case& item : kCases) expect_the_same(item, type);
  }
}

TEST(AttendOne, LooksAtNoneThatTheMaskHides) {
  const at::Tensor queries = at::randn({2, 4, 1, 8});
  const at::Tensor keys = at::randn({2, 2, 6, 8});
  const at::Tensor seen = at::randn({2, 1, 1, 6}) > 0.1;
  at::Tensor values = at::randn({2, 2, 6, 8});
  const at::Tensor before = attend_one(queries, keys, values, seen, 1);
  values = values + 100 * seen.transpose(2, 3).logical_not();
  EXPECT_TRUE(attend_one(queries, keys, values, seen, 1).equal(before));
}

TEST(AttendOne, GivesTheSameBitsOverAnyNumberOfThreads) {
  const at::Tensor queries = at::randn({2, 12, 1, 64});
  const at::Tensor keys = at::randn({2, 4, 300, 64});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = attend_one(queries, keys, keys, {}, 0.125);
  at::set_num_threads(2);
  EXPECT_TRUE(attend_one(queries, keys, keys, {}, 0.125).equal(alone));
  at::set_num_threads(before);
}

}  // namespace
}  // namespace haul::kernels
