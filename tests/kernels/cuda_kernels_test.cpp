// The kernels for GPUs, compiled for the CPU, each against its plain twin. On a GPU
// gpu_ops_test.cpp has the same for the operators.

#include <array>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "kernels/angles.h"
#include "kernels/attend.h"
#include "kernels/cuda/angles.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/curves.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/likeliest.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rotate.h"
#include "kernels/cuda/tell.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rotate.h"
#include "kernels/tell.h"

namespace haul::kernels {
namespace {

const void* data(const at::Tensor& x) {
  return x.const_data_ptr();
}
void* data_of(at::Tensor& x) {
  return x.mutable_data_ptr();
}

cuda::HeadRows<const void> rows(const at::Tensor& x) {
  return {data(x), static_cast<int>(x.size(1)), x.stride(0), x.stride(1), x.stride(2)};
}
cuda::HeadRows<void> rows_of(at::Tensor& x) {
  return {data_of(x), static_cast<int>(x.size(1)), x.stride(0), x.stride(1), x.stride(2)};
}

at::Tensor exact(const at::Tensor& x) {
  return x.defined() ? x.to(at::kDouble) : x;
}
at::Tensor exact_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return plain_linear(exact(x), exact(weight), exact(bias));
}

class CudaKernels : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor some(at::IntArrayRef sizes) const { return at::randn(sizes).to(type); }
  bool is_near(const at::Tensor& found, const at::Tensor& expected, double more = 1) const {
    return at::allclose(exact(found), exact(expected), 2 * rounding, more * rounding);
  }

  const at::ScalarType type = GetParam();
  const cuda::Numbers numbers = type == at::kFloat ? cuda::Numbers::kF32 : cuda::Numbers::kBF16;
  // Of a BF16; of sums in float32.
  const double rounding = type == at::kFloat ? 0x1p-19 : 0x1p-8;
  // Numbers of a 16-byte access.
  const std::int64_t wide = 16 / static_cast<std::int64_t>(c10::elementSize(type));
};

TEST_P(CudaKernels, MultiplyFewRows) {
  at::manual_seed(3);
  for (const std::int64_t vectors : {1, 2, 4}) {
    for (const std::int64_t width : {wide, 264L, 4104L}) {
      const at::Tensor x = some({vectors, width}) / std::sqrt(width);
      // A warp ends at most 32 rows before it asks for what the next ones need.
      const std::int64_t rows = width == wide ? 1700 : 70;
      const at::Tensor first = some({rows, width});
      const at::Tensor second = some({3, width});
      const at::Tensor bias = some({rows});
      at::Tensor of_first = at::empty({vectors, rows}, x.options());
      at::Tensor of_second = at::empty({vectors, 3}, x.options());
      cuda::FewRows job;
      job.numbers = numbers;
      job.x = data(x);
      job.vectors = static_cast<int>(vectors);
      job.width = static_cast<int>(width);
      job.weights[0] = {data(first), data(bias), data_of(of_first), static_cast<int>(rows)};
      job.weights[1] = {data(second), nullptr, data_of(of_second), 3};
      job.count = 2;
      ASSERT_TRUE(cuda::serves_width(numbers, static_cast<std::size_t>(width), job.vectors));
      ASSERT_EQ(cuda::multiply_few_rows(job, nullptr), cudaSuccess);
      EXPECT_TRUE(is_near(of_first, exact_linear(x, first, bias))) << vectors << " x " << width;
      EXPECT_TRUE(is_near(of_second, exact_linear(x, second, {}))) << vectors << " x " << width;
    }
  }
}

TEST_P(CudaKernels, GiveTheSameBitsBesideOthers) {
  at::manual_seed(11);
  const at::Tensor x = some({4, 520}) / 16;
  const at::Tensor by_output = some({40, 520});
  const at::Tensor by_input = some({520, 40});
  const auto run = [&](const at::Tensor& vectors) {
    const auto count = static_cast<int>(vectors.size(0));
    std::array<at::Tensor, 2> out;
    for (at::Tensor& one : out) one = at::empty({count, 40}, x.options());
    cuda::FewRows rows;
    rows.numbers = numbers;
    rows.x = data(vectors);
    rows.vectors = count;
    rows.width = 520;
    rows.weights[0] = {data(by_output), nullptr, data_of(out[0]), 40};
    rows.count = 1;
    EXPECT_EQ(cuda::multiply_few_rows(rows, nullptr), cudaSuccess);
    cuda::Columns columns{numbers, data(vectors), count, 520, data(by_input), 40};
    columns.out = data_of(out[1]);
    EXPECT_EQ(cuda::multiply_columns(columns, nullptr), cudaSuccess);
    return out;
  };
  const std::array<at::Tensor, 2> all = run(x);
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::array<at::Tensor, 2> alone = run(x.narrow(0, i, 1));
    EXPECT_TRUE(alone[0].equal(all[0].narrow(0, i, 1)));
    EXPECT_TRUE(alone[1].equal(all[1].narrow(0, i, 1)));
  }
}

TEST_P(CudaKernels, MultiplyWithWhatFollows) {
  at::manual_seed(4);
  const at::Tensor x = some({3, 512}) / 16;
  const at::Tensor gate = some({40, 512});
  const at::Tensor weight = some({40, 512});
  const at::Tensor bias = some({40});
  const at::Tensor residual = some({3, 40});
  at::Tensor product = at::empty({3, 40}, x.options());
  at::Tensor out = at::empty({3, 40}, x.options());
  cuda::FewRows job;
  job.numbers = numbers;
  job.x = data(x);
  job.vectors = 3;
  job.width = 512;
  job.count = 1;
  job.weights[0] = {data(gate), data(bias), data_of(product), 40};
  ASSERT_EQ(cuda::multiply_few_rows(job, nullptr), cudaSuccess);
  job.weights[0].out = data_of(out);
  job.residual = data(residual);
  ASSERT_EQ(cuda::multiply_few_rows(job, nullptr), cudaSuccess);
  EXPECT_TRUE(out.equal(residual + product));
  job.residual = nullptr;
  job.curves = true;
  for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
    job.curve = curve;
    ASSERT_EQ(cuda::multiply_few_rows(job, nullptr), cudaSuccess);
    EXPECT_TRUE(is_near(out, plain_curved(product, curve)));
    at::Tensor later = at::empty_like(product);
    const cuda::Curves after{numbers, data(product), data_of(later), product.numel(), curve};
    ASSERT_EQ(cuda::curve_all(after, nullptr), cudaSuccess);
    EXPECT_TRUE(later.equal(out));
  }
  job.curves = false;
  job.count = 2;
  job.gates = true;
  job.weights[0].out = nullptr;
  job.weights[1] = {data(weight), nullptr, data_of(out), 40};
  for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
    job.curve = curve;
    ASSERT_EQ(cuda::multiply_few_rows(job, nullptr), cudaSuccess);
    EXPECT_TRUE(is_near(out, plain_gated_linear(x, weight, {}, product, curve)));
  }
}

TEST_P(CudaKernels, MultiplyColumns) {
  at::manual_seed(7);
  for (const std::int64_t vectors : {1, 3, 4}) {
    for (const auto& [width, columns] :
         {std::array<std::int64_t, 2>{1, wide}, {130, 72}, {2500, 5 * wide}, {70, 136}}) {
      const at::Tensor x = some({vectors, width}) / std::sqrt(width);
      const at::Tensor weight = some({width, columns});
      const at::Tensor bias = some({columns});
      const at::Tensor residual = some({vectors, columns});
      at::Tensor out = at::empty({vectors, columns}, x.options());
      cuda::Columns job{numbers,
                        data(x),
                        static_cast<int>(vectors),
                        static_cast<int>(width),
                        data(weight),
                        static_cast<int>(columns),
                        data(bias)};
      job.out = data_of(out);
      ASSERT_TRUE(cuda::serves_columns(numbers, static_cast<std::size_t>(width),
                                       static_cast<std::size_t>(columns), job.vectors));
      ASSERT_EQ(cuda::multiply_columns(job, nullptr), cudaSuccess);
      EXPECT_TRUE(is_near(out, exact_linear(x, weight.t(), bias))) << vectors << " x " << width;
      at::Tensor added = at::empty_like(out);
      job.residual = data(residual);
      job.out = data_of(added);
      ASSERT_EQ(cuda::multiply_columns(job, nullptr), cudaSuccess);
      EXPECT_TRUE(added.equal(residual + out)) << vectors << " x " << width;
      job.residual = nullptr;
      job.curves = true;
      job.curve = Curve::kGeluByTanh;
      ASSERT_EQ(cuda::multiply_columns(job, nullptr), cudaSuccess);
      EXPECT_TRUE(is_near(added, at::gelu(out, "tanh"))) << vectors << " x " << width;
    }
  }
}

// A norm of few vectors, and what it gives by itself.
struct Normed {
  Normed(cuda::Numbers numbers, const at::Tensor& rows, bool centred)
      : x(3 * rows + (centred ? 2 : 0)), value(at::empty_like(x)) {
    const std::int64_t vectors = x.size(0);
    const std::int64_t width = x.size(1);
    weight = at::randn({width}).to(x.scalar_type()) / std::sqrt(width);
    if (centred) bias = at::randn({width}).to(x.scalar_type()) / std::sqrt(width);
    by = {data(weight), centred ? data(bias) : nullptr, 1e-5F};
    const cuda::Norm job{
        numbers, data(x), by, data_of(value), static_cast<int>(vectors), static_cast<int>(width)};
    EXPECT_TRUE(cuda::serves_norm_of(numbers, width));
    EXPECT_EQ(cuda::normalise_rows(job, nullptr), cudaSuccess);
  }
  at::Tensor x, weight, bias, value;
  cuda::NormBy by;
};

TEST_P(CudaKernels, NormaliseWhatTheyMultiplyAsTheNormDoes) {
  at::manual_seed(9);
  struct Case {
    std::int64_t vectors, width;
  };
  for (const Case& item : {Case{1, 8}, Case{2, 264}, Case{4, 576}, Case{3, 2048}, Case{1, 4104},
                           Case{2, 5000}, Case{1, 8192}, Case{4, 8192}}) {
    const std::int64_t vectors = item.vectors;
    const std::int64_t width = item.width;
    const Normed norm(numbers, some({vectors, width}), vectors == 2);
    const at::Tensor first = some({20, width});
    const at::Tensor second = some({20, width});
    const at::Tensor bias = some({20});
    const at::Tensor residual = some({vectors, 20});
    std::array<at::Tensor, 2> out, again;
    for (at::Tensor& one : out) one = at::zeros({vectors, 20}, first.options());
    for (at::Tensor& one : again) one = at::ones({vectors, 20}, first.options());
    cuda::FewRows job;
    job.numbers = numbers;
    job.vectors = static_cast<int>(vectors);
    job.width = static_cast<int>(width);
    job.weights[0] = {data(first), data(bias), nullptr, 20};
    job.weights[1] = {data(second), nullptr, nullptr, 20};
    const auto expect_same = [&](const char* what) {
      const auto run = [&](const at::Tensor& x, const cuda::NormBy& by,
                           std::array<at::Tensor, 2>& to) {
        job.x = data(x);
        job.norm = by;
        for (std::size_t i = 0; i < to.size(); ++i) job.weights[i].out = data_of(to[i]);
        ASSERT_TRUE(cuda::serves_width(numbers, static_cast<std::size_t>(width), job.vectors, by));
        ASSERT_EQ(cuda::multiply_few_rows(job, nullptr), cudaSuccess);
      };
      run(norm.value, {}, out);
      run(norm.x, norm.by, again);
      for (int i = job.gates ? 1 : 0; i < job.count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        EXPECT_TRUE(again[at].equal(out[at])) << what << ": " << vectors << " x " << width;
      }
    };
    job.count = 2;
    expect_same("two weights");
    job.gates = true;
    expect_same("a gate");
    job.gates = false;
    job.count = 1;
    job.residual = data(residual);
    expect_same("a residual");
    job.residual = nullptr;
    job.curves = true;
    expect_same("a curve");
  }
}

TEST_P(CudaKernels, NormaliseWhatTheyMultiplyByInput) {
  at::manual_seed(10);
  struct Case {
    std::int64_t vectors, width, columns;
  };
  for (const Case& item :
       {Case{1, 8, 8}, Case{3, 264, 40}, Case{2, 1600, 72}, Case{4, 4104, 136}}) {
    const Normed norm(numbers, some({item.vectors, item.width}), item.vectors != 2);
    const at::Tensor weight = some({item.width, item.columns});
    const at::Tensor bias = some({item.columns});
    at::Tensor out = at::zeros({item.vectors, item.columns}, weight.options());
    at::Tensor again = at::ones_like(out);
    cuda::Columns job{numbers,
                      data(norm.value),
                      static_cast<int>(item.vectors),
                      static_cast<int>(item.width),
                      data(weight),
                      static_cast<int>(item.columns),
                      data(bias)};
    job.curves = item.vectors > 1;
    job.out = data_of(out);
    ASSERT_EQ(cuda::multiply_columns(job, nullptr), cudaSuccess);
    job.x = data(norm.x);
    job.norm = norm.by;
    job.out = data_of(again);
    ASSERT_TRUE(cuda::serves_columns(numbers, static_cast<std::size_t>(item.width),
                                     static_cast<std::size_t>(item.columns), job.vectors,
                                     job.norm));
    ASSERT_EQ(cuda::multiply_columns(job, nullptr), cudaSuccess);
    EXPECT_TRUE(again.equal(out)) << item.vectors << " x " << item.width;
  }
}

// Three vectors of 16,000 bytes and their norm leave no room for weights there.
TEST_P(CudaKernels, GiveTheSameBitsWhereBlocksHaveLessSharedMemory) {
  at::manual_seed(4);
  const std::int64_t vectors = 3, width = 1000 * wide, outputs = 3 * wide;
  const Normed norm(numbers, some({vectors, width}), true);
  const at::Tensor by_output = some({outputs, width});
  const at::Tensor by_input = some({width, outputs});
  const auto products = [&] {
    std::array<at::Tensor, 2> out;
    for (at::Tensor& one : out) one = at::empty({vectors, outputs}, norm.x.options());
    cuda::FewRows rows;
    rows.numbers = numbers;
    rows.x = data(norm.x);
    rows.vectors = static_cast<int>(vectors);
    rows.width = static_cast<int>(width);
    rows.norm = norm.by;
    rows.weights[0] = {data(by_output), nullptr, data_of(out[0]), static_cast<int>(outputs)};
    rows.count = 1;
    EXPECT_TRUE(cuda::serves_width(numbers, static_cast<std::size_t>(width), 3, norm.by));
    EXPECT_EQ(cuda::multiply_few_rows(rows, nullptr), cudaSuccess);
    cuda::Columns columns{numbers,
                          data(norm.x),
                          static_cast<int>(vectors),
                          static_cast<int>(width),
                          data(by_input),
                          static_cast<int>(outputs)};
    columns.norm = norm.by;
    columns.out = data_of(out[1]);
    EXPECT_TRUE(cuda::serves_columns(numbers, static_cast<std::size_t>(width),
                                     static_cast<std::size_t>(outputs), 3, norm.by));
    EXPECT_EQ(cuda::multiply_columns(columns, nullptr), cudaSuccess);
    return out;
  };
  const auto expected = products();
  cuda::machine_of_tests.shared = 99 << 10;
  const auto found = products();
  cuda::machine_of_tests = {};
  EXPECT_TRUE(found[0].equal(expected[0]));
  EXPECT_TRUE(found[1].equal(expected[1]));
}

TEST_P(CudaKernels, NormaliseRows) {
  at::manual_seed(5);
  for (const std::int64_t width : {wide, 576L, 4104L, 2048 * wide}) {
    ASSERT_TRUE(cuda::serves_norm_of(numbers, width));
    const at::Tensor x = 3 * some({2, width});
    const at::Tensor weight = some({width});
    at::Tensor out = at::empty({2, width}, x.options());
    cuda::Norm job{numbers,      data(x), {data(weight), nullptr, 1e-6F},
                   data_of(out), 2,       static_cast<int>(width)};
    ASSERT_EQ(cuda::normalise_rows(job, nullptr), cudaSuccess);
    EXPECT_TRUE(is_near(out, plain_rms_norm(exact(x), exact(weight), 1e-6))) << width;
    const at::Tensor off_centre = x + 20;
    const at::Tensor bias = some({width});
    job.x = data(off_centre);
    job.by.bias = data(bias);
    ASSERT_EQ(cuda::normalise_rows(job, nullptr), cudaSuccess);
    EXPECT_TRUE(is_near(out, layer_norm(exact(off_centre), exact(weight), exact(bias), 1e-6)))
        << width;
  }
}

// Numbers of few values, so that many are equal, and those that are no numbers.
TEST_P(CudaKernels, FindTheLikeliest) {
  at::manual_seed(8);
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto expect_same = [this](const at::Tensor& scores) {
    const std::int64_t width = scores.size(1);
    ASSERT_TRUE(cuda::serves_scores_of(width));
    at::Tensor best =
        at::empty({scores.size(0), cuda::parts_for(numbers, static_cast<int>(width))}, at::kLong);
    at::Tensor out = at::empty({scores.size(0)}, at::kLong);
    const cuda::Likeliest job{numbers,
                              data(scores),
                              static_cast<unsigned long long*>(best.mutable_data_ptr()),
                              out.mutable_data_ptr<std::int64_t>(),
                              static_cast<int>(scores.size(0)),
                              static_cast<int>(width)};
    ASSERT_EQ(cuda::find_likeliest(job, nullptr), cudaSuccess);
    EXPECT_TRUE(out.equal(at::argmax(scores, 1))) << width << ": " << out;
  };
  for (const std::int64_t width : {8, 2051, 6000, 6004}) {
    expect_same(some({3, width}));
    const at::Tensor few = at::randint(-3, 3, {3, width}).to(type);
    expect_same(few);
    expect_same(few - 10);
    expect_same(at::full({2, width}, -infinity, few.options()));
    at::Tensor zeros = at::full({2, width}, -0.0, few.options());
    zeros[0][width - 1] = 0.0;
    expect_same(zeros);
    at::Tensor odd = few.clone();
    odd[0][width / 2] = infinity;
    odd[1][width - 1] = nan;
    odd[1][width - 3] = -nan;
    odd[2].fill_(nan);
    expect_same(odd);
  }
}

TEST(CudaAngles, AreWhatTorchFinds) {
  const at::Tensor positions = at::arange(0, 700, 7).view({2, 50});
  const at::Tensor speeds = at::pow(10000.0, -at::arange(0, 48, 2, at::kFloat) / 48);
  for (const double factor : {1.0, 1.25}) {
    const Angles expected = plain_angles(positions, speeds, factor, at::kFloat);
    at::Tensor cosine = at::empty_like(expected.cosine);
    at::Tensor sine = at::empty_like(expected.sine);
    const cuda::Angles job{cuda::Numbers::kF32,
                           positions.const_data_ptr<std::int64_t>(),
                           speeds.const_data_ptr<float>(),
                           cosine.mutable_data_ptr(),
                           sine.mutable_data_ptr(),
                           positions.numel(),
                           static_cast<int>(speeds.size(0)),
                           static_cast<float>(factor)};
    ASSERT_EQ(cuda::find_angles(job, nullptr), cudaSuccess);
    EXPECT_TRUE(at::allclose(cosine, expected.cosine, 1e-6, 1e-6)) << factor;
    EXPECT_TRUE(at::allclose(sine, expected.sine, 1e-6, 1e-6)) << factor;
  }
}

TEST(CudaTell, LeavesIdsInTheSlotOfTheirPass) {
  for (const std::int64_t count : {1, 70}) {
    at::Tensor past = at::full({1}, 9, at::kLong);
    at::Tensor told = at::zeros({4, count}, at::kLong);
    at::Tensor plain_past = past.clone();
    at::Tensor plain_told = told.clone();
    for (std::int64_t pass = 0; pass < 3; ++pass) {
      const at::Tensor ids = at::arange(count) + 100 * pass;
      ASSERT_EQ(
          cuda::tell({ids.const_data_ptr<std::int64_t>(), past.mutable_data_ptr<std::int64_t>(),
                      told.mutable_data_ptr<std::int64_t>(), static_cast<int>(count), 4},
                     nullptr),
          cudaSuccess);
      tell(ids, plain_past, plain_told);
    }
    EXPECT_EQ(past.item<std::int64_t>(), 12);
    EXPECT_TRUE(past.equal(plain_past));
    EXPECT_TRUE(told.equal(plain_told));
    EXPECT_TRUE(told[1].equal(at::arange(count)));
    EXPECT_TRUE(told[3].equal(at::arange(count) + 200));
  }
}

TEST_P(CudaKernels, RotateAndKeep) {
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
    job.numbers = queries.scalar_type() == at::kFloat ? cuda::Numbers::kF32 : cuda::Numbers::kBF16;
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

TEST_P(CudaKernels, AttendWithOneToken) {
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
TEST_P(CudaKernels, AttendToTheSameBitsHoweverMuchRoomThereIs) {
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
TEST_P(CudaKernels, KeepAndAttend) {
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

INSTANTIATE_TEST_SUITE_P(All, CudaKernels, testing::Values(at::kBFloat16, at::kFloat),
                         [](const auto& each) { return at::toString(each.param); });

}  // namespace
}  // namespace haul::kernels
