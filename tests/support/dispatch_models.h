#pragma once

// The models of dispatch_cases. tests/oracle/dispatch_models.py builds the same ones: names, shapes
// and ops must agree.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "haul/error.h"

namespace haul::test {

namespace nn = torch::nn;

struct ModelImpl : nn::Module {
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};
using Model = nn::ModuleHolder<ModelImpl>;

// A linear layer, a batch norm, a linear layer.
struct SmallImpl : ModelImpl {
  SmallImpl() {
    linear1 = register_module("linear1", nn::Linear(3, 4));
    batchnorm = register_module("batchnorm", nn::BatchNorm1d(4));
    linear2 = register_module("linear2", nn::Linear(4, 5));
  }
  at::Tensor forward(const at::Tensor& x) override { return linear2(batchnorm(linear1(x))); }
  nn::Linear linear1{nullptr}, linear2{nullptr};
  nn::BatchNorm1d batchnorm{nullptr};
};

// Modules in modules in a list.
struct NestedImpl : ModelImpl {
  struct BlockImpl : nn::Module {
    BlockImpl() {
      norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({5})));
      up = register_module("up", nn::Linear(5, 7));
      down = register_module("down", nn::Linear(7, 5));
    }
    at::Tensor forward(const at::Tensor& x) { return x + down(torch::relu(up(norm(x)))); }
    nn::LayerNorm norm{nullptr};
    nn::Linear up{nullptr}, down{nullptr};
  };

  NestedImpl() {
    first = register_module("first", std::make_shared<SmallImpl>());
    blocks = register_module("blocks", nn::ModuleList());
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<BlockImpl>());
    last = register_module("last", nn::Linear(nn::LinearOptions(5, 2).bias(false)));
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = first->forward(x);
    for (const auto& block : *blocks) y = block->as<BlockImpl>()->forward(y);
    return last(y);
  }
  std::shared_ptr<SmallImpl> first;
  nn::ModuleList blocks{nullptr};
  nn::Linear last{nullptr};
};

// The first and the last layer have one weight.
struct TiedImpl : ModelImpl {
  struct DecoderImpl : nn::Module {
    explicit DecoderImpl(const at::Tensor& shared) {
      weight = register_parameter("weight", shared);
      bias = register_parameter("bias", torch::zeros({6}));
    }
    at::Tensor forward(const at::Tensor& x) { return torch::linear(x, weight, bias); }
    at::Tensor weight, bias;
  };

  TiedImpl() {
    encoder = register_module("encoder", nn::Linear(6, 6));
    middle = register_module("middle", nn::Linear(6, 6));
    decoder = register_module("decoder", std::make_shared<DecoderImpl>(encoder->weight));
  }
  at::Tensor forward(const at::Tensor& x) override {
    return decoder->forward(torch::tanh(middle(encoder(x))));
  }
  nn::Linear encoder{nullptr}, middle{nullptr};
  std::shared_ptr<DecoderImpl> decoder;
};

// Tensors of the root itself, integers among them.
struct BuffersImpl : ModelImpl {
  struct ShiftImpl : nn::Module {
    ShiftImpl() {
      offset = register_buffer("offset", torch::zeros({4}));
      order = register_buffer("order", torch::arange(4));
      scale = register_parameter("scale", torch::ones({4}));
    }
    at::Tensor forward(const at::Tensor& x) { return (x * scale + offset).index_select(1, order); }
    at::Tensor offset, order, scale;
  };

  BuffersImpl() {
    gain = register_parameter("gain", torch::ones({4}));
    bias = register_buffer("bias", torch::zeros({4}));
    linear = register_module("linear", nn::Linear(4, 4));
    shift = register_module("shift", std::make_shared<ShiftImpl>());
  }
  at::Tensor forward(const at::Tensor& x) override {
    return shift->forward(linear(x * gain + bias));
  }
  at::Tensor gain, bias;
  nn::Linear linear{nullptr};
  std::shared_ptr<ShiftImpl> shift;
};

// One module under two names, and called three times.
struct TwiceImpl : ModelImpl {
  TwiceImpl() {
    shared = register_module("shared", nn::Linear(4, 4));
    register_module("again", shared.ptr());
    other = register_module("other", nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& x) override {
    return shared(torch::tanh(other(shared(torch::tanh(shared(x))))));
  }
  nn::Linear shared{nullptr}, other{nullptr};
};

// Names that begin alike: a.1, a.10, a.2.
struct NumberedImpl : ModelImpl {
  struct PartImpl : nn::Module {
    PartImpl() { a = register_parameter("a", torch::ones({4})); }
    at::Tensor forward(const at::Tensor& x) { return x * a + 1; }
    at::Tensor a;
  };

  NumberedImpl() {
    auto list = register_module("a", std::make_shared<nn::Module>());
    for (const char* const name : {"1", "10", "2"}) {
      parts.push_back(list->register_module(name, std::make_shared<PartImpl>()));
    }
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = x;
    for (const auto& part : parts) y = part->forward(y);
    return y;
  }
  std::vector<std::shared_ptr<PartImpl>> parts;
};

// A float weight and a table of integers.
struct TypedImpl : ModelImpl {
  TypedImpl() {
    weight = register_parameter("weight", torch::ones({10, 5}));
    ids = register_buffer("ids", torch::zeros({15, 30}, torch::kLong));
  }
  at::Tensor forward(const at::Tensor& x) override {
    return x.matmul(weight) + ids.sum().to(x.scalar_type());
  }
  at::Tensor weight, ids;
};

template <typename Impl>
std::shared_ptr<ModelImpl> make() {
  return std::make_shared<Impl>();
}

inline Model make_model(const std::string& name) {
  static const std::map<std::string, std::shared_ptr<ModelImpl> (*)()> kModels = {
      {"small", make<SmallImpl>}, {"nested", make<NestedImpl>},
      {"tied", make<TiedImpl>},   {"buffers", make<BuffersImpl>},
      {"twice", make<TwiceImpl>}, {"numbered", make<NumberedImpl>},
      {"typed", make<TypedImpl>},
  };
  const auto found = kModels.find(name);
  if (found == kModels.end()) throw Error(ErrorKind::kUsage, "no such model: " + name);
  Model model(found->second());
  model->eval();
  return model;
}

}  // namespace haul::test
