#include "haul/torch/empty_weights.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace haul {
namespace {

// Resident memory now, in KiB.
long resident() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  return 0;
}

template <typename Make>
void expect_empty_parameters(Make make, const char* name) {
  SCOPED_TRACE(name);
  const auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor state = generator.get_state();
  const auto empty = [&] {
    const EmptyWeights scope;
    return make();
  }();
  EXPECT_TRUE(generator.get_state().equal(state)) << "random numbers were spent";
  const auto full = make();
  const auto expected = full->named_parameters();
  const auto found = empty->named_parameters();
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& item : expected) {
    const at::Tensor& tensor = found[item.key()];
    EXPECT_TRUE(tensor.is_meta()) << item.key();
    EXPECT_TRUE(tensor.requires_grad()) << item.key();
    EXPECT_EQ(tensor.sizes(), item.value().sizes()) << item.key();
    EXPECT_EQ(tensor.dtype(), item.value().dtype()) << item.key();
  }
  const auto buffers = empty->named_buffers();
  for (const auto& item : full->named_buffers()) {
    ASSERT_TRUE(buffers.contains(item.key()));
    EXPECT_TRUE(buffers[item.key()].equal(item.value())) << item.key();
  }
}

TEST(EmptyWeights, StockModulesHaveShapesAndRealBuffersOnly) {
  namespace nn = torch::nn;
  expect_empty_parameters([] { return nn::Linear(7, 3); }, "linear");
  expect_empty_parameters([] { return nn::Conv2d(nn::Conv2dOptions(3, 4, 3)); }, "conv");
  expect_empty_parameters([] { return nn::ConvTranspose1d(nn::ConvTranspose1dOptions(3, 4, 3)); },
                          "transposed");
  expect_empty_parameters([] { return nn::Bilinear(3, 4, 5); }, "bilinear");
  expect_empty_parameters([] { return nn::BatchNorm2d(6); }, "batchnorm");
  expect_empty_parameters(
      [] {
        return nn::InstanceNorm1d(
            nn::InstanceNorm1dOptions(6).affine(true).track_running_stats(true));
      },
      "instancenorm");
  expect_empty_parameters([] { return nn::LayerNorm(nn::LayerNormOptions({6})); }, "layernorm");
  expect_empty_parameters([] { return nn::GroupNorm(2, 6); }, "groupnorm");
  expect_empty_parameters([] { return nn::Embedding(9, 4); }, "embedding");
  expect_empty_parameters([] { return nn::Embedding(nn::EmbeddingOptions(9, 4).padding_idx(2)); },
                          "embedding with padding");
  expect_empty_parameters([] { return nn::EmbeddingBag(9, 4); }, "bag");
  expect_empty_parameters([] { return nn::PReLU(); }, "prelu");
  expect_empty_parameters([] { return nn::LSTM(nn::LSTMOptions(4, 5).num_layers(2)); }, "lstm");
  expect_empty_parameters([] { return nn::GRU(4, 5); }, "gru");
  expect_empty_parameters([] { return nn::RNNCell(4, 5); }, "cell");
  expect_empty_parameters([] { return nn::MultiheadAttention(8, 2); }, "attention");
  expect_empty_parameters(
      [] { return nn::Transformer(nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(16)); },
      "transformer");
  expect_empty_parameters(
      [] {
        return nn::AdaptiveLogSoftmaxWithLoss(
            nn::AdaptiveLogSoftmaxWithLossOptions(64, 20, {5, 10}));
      },
      "adaptive softmax");
}

// A module such as users write: buffers computed from others, in place, through views, from values
// written by hand and from numbers read back.
struct RotaryImpl : torch::nn::Module {
  RotaryImpl() {
    weight = register_parameter("weight", torch::randn({64, 64}));
    auto inverse = 1.0 / torch::pow(10000, torch::arange(0, 8, 2).to(torch::kFloat) / 8);
    auto angles = torch::outer(torch::arange(16).to(torch::kFloat), inverse);
    table = register_buffer("table", torch::cat({angles.cos(), angles.sin()}, -1));
    auto square = torch::ones({5, 5});
    square.index_put_({torch::tensor({1, 3})}, 2.0);
    square.select(0, 0).fill_(7);
    mask = register_buffer("mask", torch::tril(square).view({1, 1, 5, 5}));
    row = register_buffer("row", mask.select(2, 4));
    const auto size = torch::arange(4).sum().item<std::int64_t>();  // a number read back: 6
    counted = register_buffer("counted", torch::full({size}, torch::arange(3).max().item<float>()));
    auto kept = torch::zeros({2});
    kept.copy_(torch::tensor({3.0, 4.0}));
    mixed = register_buffer("mixed", torch::tensor({1.0F, 2.0F}) * kept + torch::arange(2));
    scale = register_buffer("scale", torch::tensor(0.5));
  }
  torch::Tensor weight, table, mask, row, counted, mixed, scale;
};
TORCH_MODULE(Rotary);

TEST(EmptyWeights, BuffersOfAUsersModuleHoldTheirValues) {
  expect_empty_parameters([] { return Rotary(); }, "rotary");
}

TEST(EmptyWeights, ViewsAmongBuffersStillShareMemory) {
  const Rotary model = [&] {
    const EmptyWeights scope;
    return Rotary();
  }();
  model->mask.fill_(9);
  EXPECT_TRUE(model->row.eq(9).all().item<bool>());
}

TEST(EmptyWeights, BuffersStayEmptyWhenAsked) {
  const Rotary model = [] {
    const EmptyWeights scope({.include_buffers = true});
    return Rotary();
  }();
  EXPECT_TRUE(model->weight.is_meta());
  EXPECT_TRUE(model->table.is_meta());
  EXPECT_TRUE(model->mask.is_meta());
}

TEST(EmptyWeights, EndsWithItsScopeAndNests) {
  {
    const EmptyWeights outer;
    {
      const EmptyWeights inner({.include_buffers = true});
      EXPECT_TRUE(torch::empty({2}).is_meta());
    }
    EXPECT_TRUE(torch::empty({2}).is_meta());
    EXPECT_TRUE(torch::empty({2}, torch::kCPU).is_cpu());
  }
  EXPECT_TRUE(torch::empty({2}).is_cpu());
}

TEST(EmptyWeights, ATrillionParametersTakeNoMemory) {
  const long before = resident();
  torch::nn::ModuleList blocks;
  {
    const EmptyWeights scope;
    for (int i = 0; i < 128; ++i) {
      torch::nn::TransformerEncoderLayerOptions options(25600, 100);
      blocks->push_back(torch::nn::TransformerEncoderLayer(options.dim_feedforward(102400)));
    }
  }
  std::int64_t count = 0;
  for (const auto& parameter : blocks->parameters()) count += parameter.numel();
  EXPECT_GT(count, 1'000'000'000'000);
  EXPECT_LT(resident() - before, 50 * 1024);
}

TEST(InitOnDevice, PutsNewTensorsThere) {
  const auto scope = init_on_device(torch::kMeta);
  EXPECT_TRUE(torch::nn::Linear(3, 4)->weight.is_meta());
}

}  // namespace
}  // namespace haul
