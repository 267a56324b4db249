#include "tests/runtime/dispatch/same_outputs.h"

namespace haul::test {
namespace nn = torch::nn;

namespace {

struct HeadImpl : nn::Module {
  explicit HeadImpl(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight.t()); }
  at::Tensor weight;
};
TORCH_MODULE(Head);

struct TiedImpl : nn::Module {
  TiedImpl() {
    table = register_module("table", nn::Embedding(20, 8));
    head = register_module("head", Head(table->weight));
  }
  at::Tensor forward(const at::Tensor& ids) { return head(table(ids)); }
  nn::Embedding table{nullptr};
  Head head{nullptr};
};
TORCH_MODULE(Tied);

// A module that is used twice, a child's weight that the parent reads, views of weights, and a
// buffer.
struct OddImpl : nn::Module {
  OddImpl() : twice(register_module("twice", nn::Linear(6, 6))) {
    other = register_module("other", nn::Linear(6, 6));
    scale = register_parameter("scale", torch::randn({6}));
    mask = register_buffer("mask", torch::arange(6).to(torch::kFloat));
    blocks = register_module("blocks", nn::ModuleList());
    for (int i = 0; i < 3; ++i) {
      blocks->push_back(nn::Sequential(nn::Linear(6, 6), nn::LayerNorm(nn::LayerNormOptions({6}))));
    }
  }
  at::Tensor forward(at::Tensor x) {
    x = twice(twice(x)) * scale + mask;
    x = x.matmul(other->weight.t()) + other->weight[2] + other->bias.view({1, 6});
    for (auto& block : *blocks) x = x + block->as<nn::Sequential>()->forward(x);
    return x.matmul(other->weight.narrow(0, 0, 3).transpose(0, 1).reshape({-1, 3}));
  }
  nn::Linear twice{nullptr}, other{nullptr};
  nn::ModuleList blocks{nullptr};
  at::Tensor scale, mask;
};
TORCH_MODULE(Odd);

}  // namespace

void expect_same_stock_modules(const std::vector<World>& worlds, const SameOptions& options) {
  torch::manual_seed(2);
  const auto on_device = [&](const at::Tensor& tensor) { return tensor.to(options.device); };
  const auto floats = [&](at::IntArrayRef sizes) { return on_device(torch::randn(sizes)); };
  const auto one = [](const at::Tensor& input) {
    return [input](auto& model) { return Outputs{model->forward(input)}; };
  };
  const auto same = [&](const std::string& name, const auto& make, const auto& call) {
    expect_same(name, worlds, make, call, options);
  };

  same(
      "linear", [] { return nn::Linear(7, 5); }, one(floats({3, 7})));
  same(
      "bilinear", [] { return nn::Bilinear(3, 4, 5); },
      [a = floats({2, 3}), b = floats({2, 4})](auto& m) { return Outputs{m->forward(a, b)}; });
  same(
      "conv1d", [] { return nn::Conv1d(nn::Conv1dOptions(3, 4, 3)); }, one(floats({2, 3, 9})));
  same(
      "conv2d", [] { return nn::Conv2d(nn::Conv2dOptions(3, 4, 3)); }, one(floats({2, 3, 8, 8})));
  same(
      "conv3d", [] { return nn::Conv3d(nn::Conv3dOptions(2, 3, 2)); },
      one(floats({1, 2, 4, 4, 4})));
  same(
      "transposed convolution",
      [] { return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 4, 3)); },
      one(floats({2, 3, 5, 5})));
  same(
      "batch norm",
      [] {
        nn::BatchNorm2d norm(4);
        norm->eval();
        return norm;
      },
      one(floats({2, 4, 5, 5})));
  same(
      "layer norm", [] { return nn::LayerNorm(nn::LayerNormOptions({6})); }, one(floats({3, 6})));
  same(
      "group norm", [] { return nn::GroupNorm(nn::GroupNormOptions(2, 4)); },
      one(floats({2, 4, 5})));
  same(
      "instance norm", [] { return nn::InstanceNorm1d(nn::InstanceNorm1dOptions(4).affine(true)); },
      one(floats({2, 4, 5})));
  const at::Tensor ids = on_device(torch::randint(0, 20, {2, 5}));
  same(
      "embedding", [] { return nn::Embedding(20, 6); }, one(ids));
  same(
      "embedding bag", [] { return nn::EmbeddingBag(20, 6); }, one(ids));
  const auto recurrent = [](const at::Tensor& x) {
    return [x](auto& model) {
      const auto result = model->forward(x);
      return Outputs{std::get<0>(result)};
    };
  };
  same(
      "lstm", [] { return nn::LSTM(nn::LSTMOptions(4, 5).num_layers(2).bidirectional(true)); },
      recurrent(floats({6, 2, 4})));
  same(
      "gru", [] { return nn::GRU(nn::GRUOptions(4, 5).num_layers(2)); },
      recurrent(floats({6, 2, 4})));
  same(
      "rnn", [] { return nn::RNN(nn::RNNOptions(4, 5)); }, recurrent(floats({6, 2, 4})));
  same(
      "lstm cell", [] { return nn::LSTMCell(4, 5); }, recurrent(floats({2, 4})));
  same(
      "multi-head attention", [] { return nn::MultiheadAttention(8, 2); },
      [x = floats({5, 2, 8})](auto& model) {
        const auto [output, weights] = model->forward(x, x, x);
        return Outputs{output, weights};
      });
  same(
      "transformer",
      [] {
        return nn::Transformer(nn::TransformerOptions(8, 2)
                                   .num_encoder_layers(2)
                                   .num_decoder_layers(2)
                                   .dim_feedforward(16)
                                   .dropout(0.0));
      },
      [x = floats({5, 2, 8}), y = floats({4, 2, 8})](auto& model) {
        return Outputs{model->forward(x, y)};
      });
  same(
      "prelu", [] { return nn::PReLU(nn::PReLUOptions().num_parameters(4)); }, one(floats({2, 4})));
  same(
      "tied", [] { return Tied(); }, one(ids));
  same(
      "odd", [] { return Odd(); }, one(floats({2, 6})));
  {
    const at::NoGradGuard no_gradients;
    SameOptions forward = options;
    forward.backward = false;
    expect_same(
        "odd, without gradients", worlds, [] { return Odd(); }, one(floats({2, 6})), forward);
  }
}

}  // namespace haul::test
