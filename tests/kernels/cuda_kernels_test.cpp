// The kernels for GPUs, compiled for the CPU, each against its plain twin. On a GPU
// gpu_ops_test.cpp has the same for the operators.

#include "tests/kernels/cuda_kernels.h"

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
#include "kernels/cuda/angles.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/curves.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/likeliest.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/tell.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/tell.h"

namespace haul::kernels {
namespace {

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
  constexpr int kRows = 600;  // more than a warp has lanes for
  const at::Tensor x = some({3, 512}) / 16;
  const at::Tensor gate = some({kRows, 512});
  const at::Tensor weight = some({kRows, 512});
  const at::Tensor bias = some({kRows});
  const at::Tensor residual = some({3, kRows});
  at::Tensor product = at::empty({3, kRows}, x.options());
  at::Tensor out = at::empty({3, kRows}, x.options());
  cuda::FewRows job;
  job.numbers = numbers;
  job.x = data(x);
  job.vectors = 3;
  job.width = 512;
  job.count = 1;
  job.weights[0] = {data(gate), data(bias), data_of(product), kRows};
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
  job.weights[1] = {data(weight), nullptr, data_of(out), kRows};
  for (const Curve curve : {Curve::kSilu, Curve::kGeluByTanh}) {
    job.curve = curve;
    ASSERT_EQ(cuda::multiply_few_rows(job, nullptr), cudaSuccess);
    EXPECT_TRUE(is_near(out, plain_gated_linear(x, weight, {}, product, curve)));
  }
  at::Tensor by_gate = at::empty_like(out);
  job.gates = false;
  job.count = 1;
  job.gate = data(product);
  job.weights[0] = {data(weight), nullptr, data_of(by_gate), kRows};
  ASSERT_EQ(cuda::multiply_few_rows(job, nullptr), cudaSuccess);
  EXPECT_TRUE(by_gate.equal(out));
}

// Another machine until the end of a block.
struct OnMachine {
  explicit OnMachine(const cuda::Machine& machine) { cuda::machine_of_tests = machine; }
  ~OnMachine() { cuda::machine_of_tests = {}; }
};

TEST_P(CudaKernels, MultiplyColumns) {
  at::manual_seed(7);
  struct Case {
    int cluster;
    std::int64_t width, columns;
  };
  for (const std::int64_t vectors : {1, 3, 4}) {
    for (const auto& [cluster, width, columns] :
         {Case{2, wide, wide}, Case{2, 136, 72}, Case{2, 2504, 5 * wide}, Case{2, 72, 136},
          Case{1, 2504, 5 * wide}, Case{3, 2504, 5 * wide}}) {
      const OnMachine with_clusters({.processors = 4, .cluster = cluster});
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
      EXPECT_TRUE(is_near(out, exact_linear(x, weight.t(), bias)))
          << vectors << " x " << width << ", " << cluster;
      at::Tensor added = at::empty_like(out);
      job.residual = data(residual);
      job.out = data_of(added);
      ASSERT_EQ(cuda::multiply_columns(job, nullptr), cudaSuccess);
      EXPECT_TRUE(added.equal(residual + out)) << vectors << " x " << width << ", " << cluster;
      job.residual = nullptr;
      job.curves = true;
      job.curve = Curve::kGeluByTanh;
      ASSERT_EQ(cuda::multiply_columns(job, nullptr), cudaSuccess);
      EXPECT_TRUE(is_near(added, at::gelu(out, "tanh")))
          << vectors << " x " << width << ", " << cluster;
    }
  }
}

TEST_P(CudaKernels, LeaveColumnsThatTheyCannotReadInChunks) {
  const auto some_columns = static_cast<std::size_t>(wide);
  EXPECT_TRUE(cuda::serves_columns(numbers, some_columns, some_columns, 1));
  EXPECT_FALSE(cuda::serves_columns(numbers, some_columns + 1, some_columns, 1));
  EXPECT_FALSE(cuda::serves_columns(numbers, some_columns, some_columns + 1, 1));
  EXPECT_FALSE(cuda::serves_columns(numbers, some_columns << 32, some_columns, 1));
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

// Three vectors of 12,000 bytes and their norm leave little room for weights there.
TEST_P(CudaKernels, GiveTheSameBitsWhereBlocksHaveLessSharedMemory) {
  at::manual_seed(4);
  const std::int64_t vectors = 3, width = 750 * wide, outputs = 3 * wide;
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
  const OnMachine with_less({.shared = 99 << 10});
  const auto found = products();
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

INSTANTIATE_TEST_SUITE_P(All, CudaKernels, testing::Values(at::kBFloat16, at::kFloat, at::kHalf),
                         [](const auto& each) { return at::toString(each.param); });

}  // namespace
}  // namespace haul::kernels
