#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "kernels/linear.h"
#include "runtime/dispatch/split_linear.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;

const at::Device kGpu(at::kCUDA, 0);
constexpr std::int64_t kWidth = 1536;
constexpr std::int64_t kHeight = 2048;

// Layers of one width, with a bias and without; the last is too small to be split.
nn::Sequential made() {
  return nn::Sequential(nn::Linear(nn::LinearOptions(kWidth, kHeight).bias(true)),
                        nn::Linear(nn::LinearOptions(kWidth, kHeight / 2).bias(false)),
                        nn::Linear(nn::LinearOptions(kWidth, 32).bias(true)));
}

// As haul's own models call it.
at::Tensor first_of(const nn::Sequential& model, const at::Tensor& x) {
  const auto layer = model->ptr<nn::LinearImpl>(0);
  return kernels::linear(x, layer->weight, layer->bias);
}

std::vector<at::Tensor> first_layers(const nn::Sequential& model, std::size_t count,
                                     const at::Tensor& x) {
  std::vector<kernels::LinearWeights> layers;
  for (std::size_t i = 0; i < count; ++i) {
    const auto layer = model->ptr<nn::LinearImpl>(i);
    layers.push_back({layer->weight, layer->bias});
  }
  return kernels::linears(x, layers);
}

class SplitLinear : public testing::TestWithParam<at::ScalarType> {
 protected:
  SplitLinear() {
    torch::manual_seed(4);
    original = made();
    original->to(GetParam());
    save_model(original, folder.path());
    original->to(kGpu);
  }

  // All of it in RAM for the GPU, where the CPU takes a share.
  nn::Sequential loaded(double cpu_share) const {
    const EmptyWeights scope;
    nn::Sequential model = made();
    Plan plan;
    plan.map = {{"", kCpuDevice}};
    plan.cpu_share = cpu_share;
    plan.helped_rows = kMostHelpedRows;
    LoadOptions options;
    options.main_device = kGpu;
    options.dtype = GetParam() == at::kFloat  ? Dtype::kF32
                    : GetParam() == at::kHalf ? Dtype::kF16
                                              : Dtype::kBF16;
    load_checkpoint_in_model(model, folder.path(), plan, options);
    return model;
  }

  at::Tensor random_rows(std::int64_t rows) const {
    return torch::randn({rows, kWidth}).to(kGpu, GetParam());
  }
  const at::Tensor& weight() const { return original->ptr<nn::LinearImpl>(0)->weight; }
  Bytes bytes() const { return weight().nbytes(); }

  test::TemporaryFolder folder;
  nn::Sequential original;
};

// Each result is off by no more than the sum of its terms' sizes allows.
void expect_near(const at::Tensor& found, const at::Tensor& expected, const at::Tensor& terms) {
  const double bound = found.scalar_type() == at::kFloat ? kWidth * 0x1p-23 : 0x1p-7;
  const at::Tensor excess = (found - expected).abs().to(at::kFloat) - terms * bound;
  EXPECT_LE(excess.max().item<double>(), 0);
}

TEST_P(SplitLinear, GivesWhatTheGpuAloneGivesAndBringsLess) {
  const at::NoGradGuard no_gradients;
  nn::Sequential model = loaded(0.5);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 17, 32}) {
    const at::Tensor x = random_rows(rows);
    const Bytes before = dispatch_report(model).bytes_moved;
    const at::Tensor found = first_of(model, x);
    const at::Tensor expected = original->ptr<nn::LinearImpl>(0)->forward(x);
    const at::Tensor terms = x.to(at::kFloat).abs().matmul(weight().to(at::kFloat).abs().t()) + 1;
    EXPECT_TRUE(found.is_cuda());
    EXPECT_EQ(found.sizes(), expected.sizes());
    expect_near(found, expected, terms);
    if (rows > 1) {  // the order of use is known
      EXPECT_LT(dispatch_report(model).bytes_moved - before, bytes() * 7 / 10);
    }
  }
}

TEST_P(SplitLinear, GivesWithOthersOfItsInputWhatItGivesAlone) {
  const at::NoGradGuard no_gradients;
  nn::Sequential model = loaded(0.5);
  const at::Tensor x = random_rows(2);
  for (const std::size_t count : {2, 3}) {  // all of them split, and not
    for (int again = 0; again < 3; ++again) {
      const std::vector<at::Tensor> found = first_layers(model, count, x);
      for (std::size_t i = 0; i < count; ++i) {
        const auto layer = model->ptr<nn::LinearImpl>(i);
        EXPECT_TRUE(found[i].equal(kernels::linear(x, layer->weight, layer->bias))) << i;
      }
    }
  }
  const auto gate = model->ptr<nn::LinearImpl>(1);
  const at::Tensor gated =
      kernels::gated_pair(x, {gate->weight, {}}, {gate->weight, {}}, kernels::Curve::kSilu);
  const at::Tensor once = kernels::linear(x, gate->weight);
  EXPECT_TRUE(gated.equal(torch::silu(once) * once));
}

TEST_P(SplitLinear, LeavesManyRowsAndGradientsToTheGpu) {
  nn::Sequential model = loaded(0.5);
  const at::Tensor many = random_rows(kMostHelpedRows + 1);
  {
    const at::NoGradGuard no_gradients;
    EXPECT_TRUE(first_of(model, many).equal(first_of(original, many)));
  }
  const at::Tensor one = random_rows(1);
  EXPECT_TRUE(first_of(model, one).equal(first_of(original, one)));
}

TEST_P(SplitLinear, DoesNotUseWhatWasBroughtBeforeAWeightChanged) {
  const at::NoGradGuard no_gradients;
  nn::Sequential model = loaded(0.5);
  const at::Tensor x = random_rows(1);
  first_of(model, x);
  for (nn::Sequential some : {model, original}) some->ptr<nn::LinearImpl>(0)->weight.mul_(2);
  EXPECT_TRUE(first_of(model, x).equal(first_of(original, x)));
}

TEST(RowsToBring, AreAllWhereHelpIsOfNoUse) {
  const at::Tensor large = at::empty({4096, 1024});
  EXPECT_EQ(runtime::rows_to_bring(large, at::kFloat, 0.25), 3072);
  EXPECT_EQ(runtime::rows_to_bring(large, at::kFloat, 0.999), 16);
  EXPECT_EQ(runtime::rows_to_bring(large, at::kDouble, 0.5), 4096);
  EXPECT_EQ(runtime::rows_to_bring(at::empty({16, 64}), at::kFloat, 0.5), 16);
}

INSTANTIATE_TEST_SUITE_P(All, SplitLinear, testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& each) { return at::toString(each.param); });

}  // namespace
}  // namespace haul
