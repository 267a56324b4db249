// Attention of the kernels for GPUs, compiled for the CPU, against its plain twin.

#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "kernels/attend.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/rotate.h"
#include "kernels/rotate.h"
#include "tests/kernels/cuda_kernels.h"

namespace haul::kernels {
namespace {

class CudaAttention : public CudaKernels {};

TEST_P(CudaAttention, RotateAndKeep) {
  at::manual_seed(6);
  const at::Tensor queries = some({2, 3, 4, 80}).transpose(1, 2);
  const at::Tensor keys = some({2, 3, 2, 80}).transpose(1, 2);
  const at::Tensor values = some({2, 3, 2, 80}).transpose(1, 2);
  const at::Tensor cosine = some({1, 3, 40});
  const at::Tensor sine = some({1, 3, 40});
  const at::Tensor past = at::full({1}, 5, at::kLong);
  at::Tensor turned = at::empty(queries.sizes(), queries.options());
  std::array<at::Tensor, 4> room;
  for (at::Tensor& one : room) one = at::zeros({2, 2, 20, 80}, queries.options());
  cuda::Rotate job;
  job.numbers = numbers;
  job.queries = rows(queries);
  job.keys = rows(keys);
  job.values = rows(values);
  job.turned = rows_of(turned);
  job.kept_keys = rows_of(room[0]);
  job.kept_values = rows_of(room[1]);
  job.cosine = data(cosine);
  job.sine = data(sine);
  job.past = past.const_data_ptr<std::int64_t>();
  job.batch = 2;
  job.tokens = 3;
  job.size = 80;
  job.turning = 40;
  ASSERT_EQ(cuda::rotate_into(job, nullptr), cudaSuccess);
  const at::Tensor plain =
      plain_rotate_into(queries, {keys, values, room[2], room[3], past}, cosine, sine);
  // The plain one rounds both products and their sum.
  EXPECT_TRUE(is_near(turned, plain, 8));
  EXPECT_TRUE(is_near(room[0], room[2], 8));
  EXPECT_TRUE(room[1].equal(room[3]));
  EXPECT_GT(room[0].abs().sum().item<float>(), 0);
  // Of no queries, by no angle.
  for (at::Tensor& one : room) one.zero_();
  job.queries = {};
  job.turning = 0;
  ASSERT_EQ(cuda::rotate_into(job, nullptr), cudaSuccess);
  keep({keys, values, room[2], room[3], past}, keys);
  EXPECT_TRUE(room[0].equal(room[2]));
  EXPECT_TRUE(room[1].equal(room[3]));
  EXPECT_GT(room[0].abs().sum().item<float>(), 0);
}

struct AttendCase {
  std::int64_t heads, kv_heads, size, tokens, room;
};

class Attending {
 public:
  Attending(const AttendCase& item, const at::Tensor& queries, at::Tensor& keys, at::Tensor& values)
      : past_(at::full({1}, item.tokens - 1, at::kLong)),
        out_(at::empty({2, 1, item.heads * item.size}, queries.options())) {
    job.numbers = numbers_of(queries.scalar_type());
    job.queries = rows(queries);
    job.keys = rows_of(keys);
    job.values = rows_of(values);
    job.out = data_of(out_);
    job.past = past_.const_data_ptr<std::int64_t>();
    job.batch = 2;
    job.room = static_cast<int>(item.room);
    job.size = static_cast<int>(item.size);
    job.scale = 0.1F;
  }
  at::Tensor run() {
    at::Tensor parts = at::empty({static_cast<std::int64_t>(cuda::floats_for_parts(job))});
    job.parts = parts.mutable_data_ptr<float>();
    EXPECT_TRUE(cuda::serves_head_size(job.size));
    EXPECT_EQ(cuda::attend_one(job, nullptr), cudaSuccess);
    return out_.clone();
  }

  cuda::Attend job;

 private:
  at::Tensor past_, out_;
};

// As many as there are heads, from steep to nearly none.
at::Tensor slopes_for(std::int64_t heads) {
  return at::pow(2.0, -at::arange(1, heads + 1, at::kFloat) * 8 / heads);
}

TEST_P(CudaAttention, AttendWithOneToken) {
  at::manual_seed(7);
  for (const AttendCase& item :
       {AttendCase{8, 2, 128, 1, 9}, AttendCase{8, 2, 128, 65, 300}, AttendCase{8, 2, 128, 65, 100},
        AttendCase{3, 1, 64, 700, 700}, AttendCase{2, 2, 256, 300, 320},
        AttendCase{6, 1, 128, 200, 200}, AttendCase{6, 1, 64, 128, 128},
        AttendCase{4, 4, 80, 65, 100}, AttendCase{6, 1, 80, 300, 300}, AttendCase{2, 1, 8, 70, 90},
        AttendCase{2, 2, 96, 130, 200}, AttendCase{1, 1, 200, 70, 300}}) {
    const at::Tensor queries = some({2, item.heads, 1, item.size});
    at::Tensor keys = some({2, item.kv_heads, item.room, item.size});
    at::Tensor values = some({2, item.kv_heads, item.room, item.size});
    Attending attending(item, queries, keys, values);
    const auto seen = [&](const at::Tensor& x) { return exact(x.narrow(2, 0, item.tokens)); };
    const at::Tensor expected = plain_attend(exact(queries), seen(keys), seen(values), {}, 0.1);
    EXPECT_TRUE(is_near(attending.run(), expected))
        << item.tokens << " tokens, heads of " << item.size;
    const at::Tensor slopes = slopes_for(item.heads);
    const at::Tensor bias = place_bias(slopes, at::arange(item.tokens).unsqueeze(0), type);
    attending.job.slopes = slopes.const_data_ptr<float>();
    const at::Tensor biased =
        plain_attend(exact(queries), seen(keys), seen(values), {exact(bias)}, 0.1);
    EXPECT_TRUE(is_near(attending.run(), biased))
        << item.tokens << " tokens, heads of " << item.size << " with slopes";
  }
}

// Parts are joined by a cluster, or where there is more room by a kernel of its own.
TEST_P(CudaAttention, AttendToTheSameBitsHoweverMuchRoomThereIs) {
  at::manual_seed(11);
  const at::Tensor slopes = slopes_for(3);
  for (const std::int64_t size : {64, 80, 128, 256}) {
    const at::Tensor queries = some({2, 3, 1, size});
    at::Tensor keys = some({2, 1, 300, size});
    at::Tensor values = some({2, 1, 300, size});
    for (const std::int64_t tokens : {1, 64, 65, 99}) {
      at::Tensor few_keys = keys.narrow(2, 0, 100);
      at::Tensor few_values = values.narrow(2, 0, 100);
      Attending few({3, 1, size, tokens, 100}, queries, few_keys, few_values);
      Attending much({3, 1, size, tokens, 300}, queries, keys, values);
      EXPECT_TRUE(few.run().equal(much.run())) << tokens << " tokens, heads of " << size;
      few.job.slopes = much.job.slopes = slopes.const_data_ptr<float>();
      EXPECT_TRUE(few.run().equal(much.run())) << tokens << " tokens, heads of " << size;
    }
  }
}

// What is turned, kept and looked at in one kernel, to the bits of two.
TEST_P(CudaAttention, KeepAndAttend) {
  at::manual_seed(9);
  for (const std::int64_t turning : {0L, 40L, 64L}) {
    for (const AttendCase& item :
         {AttendCase{6, 1, 64, 1, 9}, AttendCase{4, 2, 64, 64, 100}, AttendCase{4, 2, 128, 65, 100},
          AttendCase{4, 4, 80, 65, 100}, AttendCase{2, 2, 256, 130, 300}}) {
      const at::Tensor queries = some({2, 1, item.heads, item.size}).transpose(1, 2);
      const at::Tensor added = some({2, 1, 2 * item.kv_heads, item.size}).transpose(1, 2);
      const at::Tensor new_keys = added.narrow(1, 0, item.kv_heads);
      const at::Tensor new_values = added.narrow(1, item.kv_heads, item.kv_heads);
      const at::Tensor cosine = some({2, 1, std::max(turning, 1L)});
      const at::Tensor sine = some({2, 1, std::max(turning, 1L)});
      at::Tensor keys = some({2, item.kv_heads, item.room, item.size});
      at::Tensor values = some({2, item.kv_heads, item.room, item.size});
      at::Tensor kept_keys = keys.clone();
      at::Tensor kept_values = values.clone();

      at::Tensor turned = at::empty({2, item.heads, 1, item.size}, queries.options());
      const at::Tensor past = at::full({1}, item.tokens - 1, at::kLong);
      cuda::Rotate rotate;
      rotate.numbers = numbers;
      rotate.queries = rows(queries);
      rotate.keys = rows(new_keys);
      rotate.values = rows(new_values);
      rotate.turned = rows_of(turned);
      rotate.kept_keys = rows_of(keys);
      rotate.kept_values = rows_of(values);
      rotate.cosine = data(cosine);
      rotate.sine = data(sine);
      rotate.of_batch = turning;
      rotate.past = past.const_data_ptr<std::int64_t>();
      rotate.batch = 2;
      rotate.tokens = 1;
      rotate.size = static_cast<int>(item.size);
      rotate.turning = static_cast<int>(turning);
      ASSERT_EQ(cuda::rotate_into(rotate, nullptr), cudaSuccess);
      // With slopes where nothing turns, as models are.
      const at::Tensor slopes = slopes_for(item.heads);
      const float* const each = turning == 0 ? slopes.const_data_ptr<float>() : nullptr;
      Attending after(item, turned, keys, values);
      after.job.slopes = each;
      const at::Tensor expected = after.run();

      Attending attending(item, queries, kept_keys, kept_values);
      attending.job.slopes = each;
      attending.job.fresh = {rows(new_keys), rows(new_values), data(cosine),
                             data(sine),     turning,          static_cast<int>(turning)};
      EXPECT_TRUE(attending.run().equal(expected)) << item.tokens << " of heads of " << item.size;
      EXPECT_TRUE(kept_keys.equal(keys));
      EXPECT_TRUE(kept_values.equal(values));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttention, testing::Values(at::kBFloat16, at::kFloat, at::kHalf),
                         [](const auto& each) { return at::toString(each.param); });

}  // namespace
}  // namespace haul::kernels
