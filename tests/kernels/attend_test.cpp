#include "kernels/attend.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace haul::kernels {
namespace {

struct Case {
  std::int64_t batch, heads, kv_heads, looking, tokens, size;
};

// Keys or values as they lie in a cache with room for more.
at::Tensor kept(const Case& item, at::ScalarType type) {
  return at::randn({item.batch, item.kv_heads, item.tokens + 9, item.size})
      .to(type)
      .narrow(2, 0, item.tokens);
}

void expect_the_same(const Case& item, const Looking& looking, at::ScalarType type) {
  // As projections give them.
  const at::Tensor queries =
      (2 * at::randn({item.batch, item.looking, item.heads, item.size})).to(type).transpose(1, 2);
  const at::Tensor keys = kept(item, type);
  const at::Tensor values = kept(item, type);
  const at::Tensor own = attend(queries, keys, values, looking, 0.3);
  const at::Tensor plain = plain_attend(queries, keys, values, looking, 0.3);
  EXPECT_EQ(own.sizes(), plain.sizes());
  EXPECT_EQ(own.scalar_type(), type);
  const double most = type == at::kFloat ? 1e-5 : 0x1p-6;
  EXPECT_TRUE(at::allclose(own, plain, most, most))
      << item.looking << " at " << item.tokens << ", " << type << (looking.causal ? ", causal" : "")
      << ": " << (own - plain).abs().max().item<double>() << " apart";
}

TEST(Attend, OfOneTokenIsTheSameAsOfTorchsOps) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Case& item :
         {Case{1, 9, 3, 1, 1, 64}, Case{1, 9, 3, 1, 140, 64}, Case{2, 4, 4, 1, 33, 16},
          Case{3, 8, 1, 1, 1000, 8}, Case{2, 6, 2, 1, 7, 5}, Case{1, 1, 1, 1, 3, 1}}) {
      expect_the_same(item, {}, type);
      expect_the_same(item, {at::randn({1, item.heads, 1, item.tokens}).to(type)}, type);
      expect_the_same(item, {at::randn({item.batch, 1, 1, item.tokens}).to(type)}, type);
    }
  }
}

TEST(Attend, OfOneTokenInHalvesIsWhatFloatsGiveRounded) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const std::int64_t size : {64, 13}) {
      const at::Tensor queries = at::randn({2, 6, 1, size}).to(type);
      const at::Tensor keys = at::randn({2, 3, 77, size}).to(type);
      const at::Tensor values = at::randn({2, 3, 77, size}).to(type);
      const auto in_floats = [](const at::Tensor& x) { return x.to(at::kFloat); };
      const at::Tensor expected =
          attend(in_floats(queries), in_floats(keys), in_floats(values), {}, 0.2);
      EXPECT_TRUE(attend(queries, keys, values, {}, 0.2).equal(expected.to(type)));
    }
  }
}

TEST(Attend, OfManyTokensIsTheSameAsOfTorchsOps) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Case& item :
         {Case{1, 9, 3, 70, 70, 64}, Case{2, 4, 4, 8, 8, 16}, Case{3, 4, 2, 13, 13, 20},
          Case{1, 2, 1, 2, 2, 5}, Case{2, 2, 2, 130, 130, 8}}) {
      expect_the_same(item, {{}, true}, type);
      expect_the_same(item, {}, type);
    }
    expect_the_same({2, 4, 2, 9, 30, 16}, {{}, true}, type);
    expect_the_same({1, 2, 1, 1100, 1307, 8}, {{}, true}, type);
    expect_the_same({2, 4, 2, 9, 30, 16}, {}, type);
    expect_the_same({2, 4, 2, 30, 3, 16}, {}, type);
    expect_the_same({2, 4, 2, 9, 30, 16}, {at::randn({2, 1, 9, 30}).to(type)}, type);
  }
}

// Also of more tokens than plain_attend takes at once, and as many again.
TEST(Attend, AfterOthersLooksAtWhatAMaskWouldShow) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t tokens : {2, 5, 512, 513, 1100}) {
      const std::int64_t total = tokens + 203;
      const at::Tensor queries = at::randn({2, 4, tokens, 8}).to(type);
      const at::Tensor keys = at::randn({2, 2, total, 8}).to(type);
      const at::Tensor values = at::randn({2, 2, total, 8}).to(type);
      const at::Tensor shown = at::arange(total) <= at::arange(203, total).unsqueeze(1);
      const at::Tensor expected =
          plain_attend(queries, keys, values, {shown.view({1, 1, tokens, total})}, 0.3);
      const double most = type == at::kFloat ? 1e-5 : 0x1p-6;
      for (const auto way : {attend, plain_attend}) {
        const at::Tensor found = way(queries, keys, values, {{}, true}, 0.3);
        ASSERT_EQ(found.sizes(), expected.sizes());
        EXPECT_TRUE(at::allclose(found, expected, most, most)) << tokens;
      }
    }
  }
}

TEST(Attend, LooksAtNoneThatTheMaskHides) {
  const at::Tensor queries = at::randn({2, 4, 1, 8});
  const at::Tensor keys = at::randn({2, 2, 6, 8});
  const at::Tensor seen = at::randn({2, 1, 1, 6}) > 0.1;
  at::Tensor values = at::randn({2, 2, 6, 8});
  const at::Tensor before = attend(queries, keys, values, {seen}, 1);
  values = values + 100 * seen.transpose(2, 3).logical_not();
  EXPECT_TRUE(attend(queries, keys, values, {seen}, 1).equal(before));
}

// Slopes are a bias by place, of as many tokens as there are and not of their room.
TEST(Attend, AddsAPlaceTimesASlope) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor queries = at::randn({2, 4, 1, 8}).to(type);
    const at::Tensor keys = at::randn({2, 2, 30, 8}).to(type);
    const at::Tensor values = at::randn({2, 2, 30, 8}).to(type);
    const at::Tensor slopes = at::tensor({0.5F, 0.3F, 0.1F, 0.01F});
    const auto seen = [](const at::Tensor& x) { return x.narrow(2, 0, 21); };
    const at::Tensor bias = place_bias(slopes, at::arange(21).unsqueeze(0), type);
    EXPECT_EQ(bias[0][1][0][20].item<float>(), at::tensor(0.3F * 20).to(type).item<float>());
    const at::Tensor expected = plain_attend(queries, seen(keys), seen(values), {bias}, 0.3);
    const at::Tensor found =
        attend(queries, seen(keys), seen(values), {{}, false, {}, slopes}, 0.3);
    EXPECT_TRUE(found.equal(expected));
    const at::Tensor past = at::tensor({20}, at::kLong);
    const at::Tensor replayed = attend(queries, keys, values, {{}, false, past, slopes}, 0.3);
    const double most = type == at::kFloat ? 1e-5 : 0x1p-6;
    EXPECT_TRUE(at::allclose(replayed, expected, most, most));
  }
}

TEST(Attend, ATokenDoesNotDependOnThoseAfterIt) {
  const at::Tensor queries = at::randn({1, 2, 21, 8});
  const at::Tensor keys = at::randn({1, 2, 21, 8});
  at::Tensor values = at::randn({1, 2, 21, 8});
  const at::Tensor before = attend(queries, keys, values, {{}, true}, 1);
  values.narrow(2, 13, 8).fill_(1e6);
  const at::Tensor after = attend(queries, keys, values, {{}, true}, 1);
  EXPECT_TRUE(after.narrow(1, 0, 13).equal(before.narrow(1, 0, 13)));
  EXPECT_FALSE(after.narrow(1, 13, 1).equal(before.narrow(1, 13, 1)));
}

TEST(Attend, GivesTheSameBitsOverAnyNumberOfThreads) {
  for (const std::int64_t looking : {1, 300}) {
    const at::Tensor queries = at::randn({2, 12, looking, 64});
    const at::Tensor keys = at::randn({2, 4, 300, 64});
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const at::Tensor alone = attend(queries, keys, keys, {}, 0.125);
    at::set_num_threads(2);
    EXPECT_TRUE(attend(queries, keys, keys, {}, 0.125).equal(alone));
    at::set_num_threads(before);
  }
}

}  // namespace
}  // namespace haul::kernels
