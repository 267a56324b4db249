#include "haul/torch/dispatch.h"

#include <exception>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/empty_weights.h"
#include "tests/runtime/dispatch/same_outputs.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;
using test::expect_error;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<test::World> kWorlds = {
    test::everything("all on the CPU", kCpuDevice),
    test::in_turn("CPU and disk in turn", {kCpuDevice, kDiskDevice}),
    test::everything("every layer on disk", kDiskDevice),
};

TEST(Dispatch, StockModulesGiveTheSameBitsAndGradients) {
  test::expect_same_stock_modules(kWorlds, {});
}

// Whose forward fails when it is told to.
struct FailingImpl : nn::Module {
  FailingImpl() { linear = register_module("linear", nn::Linear(8, 8)); }
  at::Tensor forward(const at::Tensor& x) {
    if (failure) std::rethrow_exception(failure);
    return linear(x);
  }
  nn::Linear linear{nullptr};
  std::exception_ptr failure;
};
TORCH_MODULE(Failing);

TEST(Dispatch, TellsMissingMemoryWithThePlanAndGoesOn) {
  const test::TemporaryFolder folder;
  DispatchOptions options;
  options.offload_folder = folder.path();
  Failing model;
  Dispatched<Failing> called = dispatch_model(model, DeviceMap{{"", kDiskDevice}}, options);
  const at::Tensor x = torch::randn({2, 8});
  const at::Tensor expected = called(x);
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  const char* const words = "CUDA out of memory. Tried to allocate 2.00 MiB";
  model->failure = std::make_exception_ptr(c10::OutOfMemoryError(here, words));
  expect_error(ErrorKind::kResource,
               AllOf(HasSubstr(std::string("the model: not enough memory: ") + words),
                     HasSubstr("; RAM: planned were ")),
               [&] { called(x); });
  EXPECT_THROW(model->forward(x), c10::OutOfMemoryError);
  model->failure = std::make_exception_ptr(c10::Error(here, "another"));
  EXPECT_THROW(called(x), c10::Error);
  model->failure = std::make_exception_ptr(std::out_of_range("of the model's own"));
  EXPECT_THROW(called(x), std::out_of_range);
  model->failure = nullptr;
  EXPECT_TRUE(called(x).equal(expected));
}

TEST(Dispatch, ModulesRunUnderInferenceMode) {
  test::SameOptions options;
  options.backward = false;
  const at::Tensor x = torch::randn({3, 7});
  const auto call = [&](auto& model) {
    const c10::InferenceMode inference;
    return test::Outputs{model->forward(x)};
  };
  const auto make = [] {
    return nn::Sequential(nn::Linear(7, 5), nn::LayerNorm(nn::LayerNormOptions({5})));
  };
  test::expect_same("built outside", kWorlds, make, call, options);
  const c10::InferenceMode inference;
  test::expect_same("built inside", kWorlds, make, call, options);
}

// The peer's example: a linear layer, a batch norm, a linear layer.
struct SmallImpl : nn::Module {
  SmallImpl() {
    linear1 = register_module("linear1", nn::Linear(3, 4));
    batchnorm = register_module("batchnorm", nn::BatchNorm1d(4));
    linear2 = register_module("linear2", nn::Linear(4, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return linear2(batchnorm(linear1(x))); }
  nn::Linear linear1{nullptr}, linear2{nullptr};
  nn::BatchNorm1d batchnorm{nullptr};
};
TORCH_MODULE(Small);

class SmallModel : public testing::Test {
 protected:
  SmallModel() {
    torch::manual_seed(3);
    model = Small();
    model->eval();
    input = torch::randn({2, 3});
    expected = model->forward(input).detach();
    save_model(model, checkpoint.path());
  }

  static Small empty() {
    const EmptyWeights scope;
    Small small;
    small->eval();
    return small;
  }

  Small model{nullptr};
  at::Tensor input, expected;
  test::TemporaryFolder checkpoint;
};

TEST_F(SmallModel, IsLoadedOverAMapOfItsModules) {
  Small loaded = empty();
  auto handle = load_checkpoint_and_dispatch(
      loaded, checkpoint.path(),
      DeviceMap{{"linear1", kDiskDevice}, {"batchnorm", kCpuDevice}, {"linear2", kDiskDevice}});
  EXPECT_TRUE(handle(input).equal(expected));
  EXPECT_TRUE(loaded->forward(input).equal(expected)) << "a direct call";
  EXPECT_EQ(device_map(loaded).size(), 3U);
  EXPECT_FALSE(loaded->linear1->weight.is_meta());
  EXPECT_EQ(loaded->linear1->weight.storage().data(), nullptr) << "not resident between ops";
  EXPECT_NE(loaded->batchnorm->weight.storage().data(), nullptr);
  const DispatchReport report = dispatch_report(loaded);
  EXPECT_GT(report.leases, 0U);
  EXPECT_GT(report.bytes_moved, 0U);
  EXPECT_EQ(report.unplanned, 0U);
  ASSERT_EQ(report.tiers.size(), 1U);
  EXPECT_GT(report.tiers[0].planned, 4U * 4 * 2) << "the batch norm, and slots";
  EXPECT_LE(report.tiers[0].peak, report.tiers[0].planned + 5 * 512) << "rounding aside";
}

TEST_F(SmallModel, CannotBeMovedOnceItIsDispatched) {
  Small loaded = empty();
  load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", kDiskDevice}});
  expect_error(ErrorKind::kUsage,
               AllOf(HasSubstr("linear1.weight"), HasSubstr("cannot be moved or converted")),
               [&] { loaded->to(torch::kDouble); });
  EXPECT_TRUE(loaded->forward(input).equal(expected)) << "it is as it was";
  undispatch(loaded);
  loaded->to(torch::kDouble);
  EXPECT_EQ(loaded->linear1->weight.dtype(), torch::kDouble);
}

TEST_F(SmallModel, IsNotMovedInPartEither) {
  const test::TemporaryFolder folder;
  DispatchOptions options;
  options.offload_folder = folder.path();
  const DeviceMap map = {{"", kCpuDevice}, {"linear2", kDiskDevice}};
  Small loaded = empty();
  load_checkpoint_in_model(loaded, checkpoint.path(), map);
  place_model(model, map, options);
  for (Small& small : {std::ref(loaded), std::ref(model)}) {
    // The first tensors lie in RAM, as they were or as they were loaded.
    expect_error(ErrorKind::kUsage, HasSubstr("'linear1.weight'"),
                 [&] { small->to(torch::kDouble); });
    for (const at::Tensor& parameter : small->parameters()) {
      EXPECT_EQ(parameter.dtype(), torch::kFloat);
    }
    small->linear1->bias.set_data(small->linear1->bias.detach().clone());
    EXPECT_TRUE(small->forward(input).equal(expected));
    undispatch(small);
    small->to(torch::kDouble);
    for (const at::Tensor& parameter : small->parameters()) {
      EXPECT_EQ(parameter.dtype(), torch::kDouble);
    }
  }
}

TEST_F(SmallModel, SavesFromAnyStateInShardsAndComesBack) {
  Small loaded = empty();
  load_checkpoint_in_model(loaded, checkpoint.path(),
                           DeviceMap{{"linear1", kDiskDevice}, {"", kCpuDevice}});
  const test::TemporaryFolder folder;
  save_model(loaded, folder.path(), 100);
  int shards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    shards += entry.path().extension() == ".safetensors";
  }
  EXPECT_EQ(shards, 3);
  Small again = empty();
  load_checkpoint_in_model(again, folder.path(), DeviceMap{{"", kCpuDevice}});
  EXPECT_TRUE(again->forward(input).equal(expected));
}

TEST_F(SmallModel, CastsFloatsOnTheWayAndLeavesIntegers) {
  Small loaded = empty();
  const test::TemporaryFolder folder;
  LoadOptions options;
  options.dtype = Dtype::kBF16;
  options.keep_in_fp32_modules = {"linear2"};
  options.offload_folder = folder.path();
  load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", kDiskDevice}}, options);
  EXPECT_EQ(loaded->linear1->weight.dtype(), torch::kBFloat16);
  EXPECT_EQ(loaded->linear2->weight.dtype(), torch::kFloat);
  EXPECT_EQ(loaded->batchnorm->num_batches_tracked.dtype(), torch::kLong);
  EXPECT_TRUE(loaded->linear1->weight.to(torch::kCPU, torch::kFloat)
                  .equal(model->linear1->weight.to(torch::kBFloat16).to(torch::kFloat)));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files += entry.is_regular_file();
  }
  EXPECT_EQ(files, 1) << "what no file holds in bf16 was written, once";
}

TEST_F(SmallModel, IsNotLoadedAsWhatFloatsDoNotBecome) {
  for (const Dtype dtype : {Dtype::kI8, Dtype::kF8E4M3}) {
    Small loaded = empty();
    LoadOptions options;
    options.dtype = dtype;
    test::expect_error(
        ErrorKind::kUnsupported,
        HasSubstr("F32 in the checkpoint, and " + std::string(name(dtype))), [&] {
          load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", kCpuDevice}}, options);
        });
  }
}

TEST_F(SmallModel, KeepsWholeNamesWide) {
  Small loaded = empty();
  LoadOptions options;
  options.dtype = Dtype::kBF16;
  options.keep_in_fp32_modules = {"linear", "norm", "linear1.bias"};
  load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", kCpuDevice}}, options);
  EXPECT_EQ(loaded->linear2->weight.dtype(), torch::kBFloat16) << "there is no module 'linear'";
  EXPECT_EQ(loaded->batchnorm->weight.dtype(), torch::kFloat);
  EXPECT_EQ(loaded->linear1->weight.dtype(), torch::kBFloat16);
  EXPECT_EQ(loaded->linear1->bias.dtype(), torch::kFloat);
}

TEST(Dispatch, SaysWhereATensorGoesThatAMapSplits) {
  struct TiedImpl : nn::Module {
    TiedImpl() {
      const at::Tensor shared = torch::ones({3});
      register_module("z", std::make_shared<nn::Module>())->register_parameter("w", shared);
      register_module("a", std::make_shared<nn::Module>())->register_parameter("w", shared);
    }
  };
  TiedImpl model;
  const test::TemporaryFolder checkpoint;
  save_model(model, checkpoint.path());
  LoadOptions options;
  std::vector<std::string> said;
  options.log = [&](const std::string& line) { said.push_back(line); };
  load_checkpoint_in_model(model, checkpoint.path(),
                           DeviceMap{{"a", kCpuDevice}, {"z", kDiskDevice}}, options);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], HasSubstr("z.w, a.w, which are one tensor: it goes to disk"));
  EXPECT_EQ(model.named_parameters()["a.w"].storage().data(), nullptr);
}

TEST_F(SmallModel, NamesEverythingThatDoesNotMatch) {
  struct OtherImpl : nn::Module {
    OtherImpl() {
      linear1 = register_module("linear1", nn::Linear(3, 7));
      linear2 = register_module("linear2", nn::Linear(9, 5));
      extra = register_module("extra", nn::Linear(2, 2));
    }
    nn::Linear linear1{nullptr}, linear2{nullptr}, extra{nullptr};
  };
  OtherImpl other;
  expect_error(ErrorKind::kCorrupt,
               AllOf(HasSubstr("'linear1.weight': [7, 3] in the model, [4, 3] in the checkpoint"),
                     HasSubstr("'linear1.bias'"), HasSubstr("'linear2.weight'")),
               [&] {
                 load_checkpoint_in_model(other, checkpoint.path(), DeviceMap{{"", kCpuDevice}});
               });

  struct MoreImpl : SmallImpl {
    MoreImpl() { extra = register_module("extra", nn::Linear(2, 2)); }
    nn::Linear extra{nullptr};
  };
  auto more = [] {
    const EmptyWeights scope;
    return std::make_shared<MoreImpl>();
  }();
  expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("extra.weight"), HasSubstr("extra.bias")), [&] {
    load_checkpoint_in_model(*more, checkpoint.path(), DeviceMap{{"", kCpuDevice}});
  });
  LoadOptions options;
  std::vector<std::string> said;
  options.log = [&](const std::string& line) { said.push_back(line); };
  options.allow_missing = true;
  const LoadReport report =
      load_checkpoint_in_model(*more, checkpoint.path(), DeviceMap{{"", kCpuDevice}}, options);
  EXPECT_EQ(report.uninitialised, (std::vector<std::string>{"extra.weight", "extra.bias"}));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], HasSubstr("extra.weight, extra.bias"));

  nn::Sequential less(nn::Linear(3, 4));
  struct LessImpl : nn::Module {
    LessImpl() { linear1 = register_module("linear1", nn::Linear(3, 4)); }
    nn::Linear linear1{nullptr};
  };
  LessImpl part;
  options.strict = true;
  expect_error(
      ErrorKind::kCorrupt, AllOf(HasSubstr("linear2.weight"), HasSubstr("batchnorm.running_mean")),
      [&] {
        load_checkpoint_in_model(part, checkpoint.path(), DeviceMap{{"", kCpuDevice}}, options);
      });
}

TEST_F(SmallModel, KeepsValuesThatTheCheckpointDoesNotHold) {
  struct MoreImpl : SmallImpl {
    MoreImpl() { extra = register_module("extra", nn::Linear(5, 2)); }
    at::Tensor forward(const at::Tensor& x) { return extra(SmallImpl::forward(x)); }
    nn::Linear extra{nullptr};
  };
  const test::TemporaryFolder folder;
  LoadOptions options;
  options.offload_folder = folder.path();
  options.log = [](const std::string&) {};
  options.allow_missing = true;
  for (const Device device : {kCpuDevice, kDiskDevice}) {
    MoreImpl more;
    more.eval();
    const at::Tensor wanted = more.extra->forward(expected).detach();
    const LoadReport report =
        load_checkpoint_in_model(more, checkpoint.path(), DeviceMap{{"", device}}, options);
    EXPECT_EQ(report.missing.size(), 2U);
    EXPECT_TRUE(report.uninitialised.empty());
    EXPECT_TRUE(more.forward(input).equal(wanted)) << to_string(device);
  }
  auto empty_part = [] {
    const EmptyWeights scope;
    return std::make_shared<MoreImpl>();
  }();
  load_checkpoint_in_model(*empty_part, checkpoint.path(), DeviceMap{{"", kDiskDevice}}, options);
  EXPECT_TRUE(empty_part->extra->weight.is_meta()) << "it is for the user to fill";
  empty_part->eval();
  EXPECT_TRUE(empty_part->SmallImpl::forward(input).equal(expected));
}

TEST_F(SmallModel, KeepsWhatAnOpWritesIntoAnOffloadedWeight) {
  const test::TemporaryFolder folder;
  disk_offload(model, folder.path());
  {
    const at::NoGradGuard no_gradients;
    model->linear1->weight.mul_(2);
    model->linear1->weight[0].fill_(1);
  }
  Small plain;
  plain->eval();
  load_checkpoint_in_model(plain, checkpoint.path(), DeviceMap{{"", kCpuDevice}});
  {
    const at::NoGradGuard no_gradients;
    plain->linear1->weight.mul_(2);
    plain->linear1->weight[0].fill_(1);
  }
  EXPECT_TRUE(model->forward(input).equal(plain->forward(input)));
  undispatch(model);
  EXPECT_TRUE(model->linear1->weight.equal(plain->linear1->weight));
}

TEST_F(SmallModel, TakesAStepOfAnOptimizerWhileItLiesOnDisk) {
  const auto train = [&](Small& small) {
    small->train();
    torch::optim::SGD optimizer(small->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      small->forward(input).pow(2).sum().backward();
      optimizer.step();
    }
    small->eval();
    return small->forward(input);
  };
  Small plain;
  load_checkpoint_in_model(plain, checkpoint.path(), DeviceMap{{"", kCpuDevice}});
  const test::TemporaryFolder folder;
  DispatchOptions options;
  options.offload_buffers = true;
  disk_offload(model, folder.path(), options);
  EXPECT_TRUE(train(model).equal(train(plain)));
}

TEST_F(SmallModel, IsRunByManyThreadsAtOnce) {
  Small loaded = empty();
  load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", kDiskDevice}});
  std::vector<std::jthread> threads;
  threads.reserve(4);
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) wrong += !loaded->forward(input).equal(expected);
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST_F(SmallModel, SaysWhichFileFailedAndGoesOnWhenItIsBack) {
  Small loaded = empty();
  load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", kDiskDevice}});
  const auto file = checkpoint.path() / "model.safetensors";
  const auto kept = checkpoint.path() / "kept";
  std::filesystem::copy_file(file, kept);
  std::filesystem::rename(file, checkpoint.path() / "away");
  std::filesystem::rename(kept, file);
  expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("linear1"), HasSubstr("model.safetensors")),
               [&] { loaded->forward(input); });
  std::filesystem::rename(checkpoint.path() / "away", file);
  EXPECT_TRUE(loaded->forward(input).equal(expected));
}

TEST(Dispatch, FitsIntoAnyBudgetThatThePlanAccepts) {
  const auto make = [] {
    nn::Sequential model;
    for (int i = 0; i < 6; ++i) model->push_back(nn::Linear(700, 700));
    return model;
  };
  torch::manual_seed(4);
  nn::Sequential plain = make();
  const test::TemporaryFolder checkpoint;
  save_model(plain, checkpoint.path());
  const at::Tensor input = torch::randn({2, 700});
  const at::Tensor expected = plain->forward(input);
  constexpr Bytes kLayer = 700 * 701 * 4;
  for (Bytes budgeted = kLayer + kLayer / 4; budgeted < 8 * kLayer; budgeted += kLayer / 4) {
    SCOPED_TRACE(budgeted);
    nn::Sequential loaded{nullptr};
    {
      const EmptyWeights scope;
      loaded = make();
    }
    LoadOptions options;
    options.max_memory = get_max_memory({budget(kCpuDevice, budgeted)});
    load_checkpoint_in_model(loaded, checkpoint.path(), MapMode::kAuto, options);
    EXPECT_TRUE(loaded->forward(input).equal(expected));
    for (const TierUse& tier : dispatch_report(loaded).tiers) EXPECT_LE(tier.peak, budgeted);
  }
}

TEST_F(SmallModel, IsNotDispatchedTwiceAndSharesItsMemoryAgainAfterwards) {
  struct ViewsImpl : nn::Module {
    ViewsImpl() {
      const at::Tensor memory = torch::arange(12, torch::kFloat);
      left = register_parameter("left", memory.narrow(0, 0, 8).view({2, 4}));
      right = register_parameter("right", memory.narrow(0, 4, 8).view({4, 2}));
    }
    at::Tensor left, right;
  };
  ViewsImpl views;
  const test::TemporaryFolder folder;
  disk_offload(views, folder.path());
  expect_error(ErrorKind::kUsage, AllOf(HasSubstr("left"), HasSubstr("dispatched already")),
               [&] { disk_offload(views, folder.path()); });
  undispatch(views);
  const at::NoGradGuard no_gradients;
  EXPECT_TRUE(views.left.flatten().equal(torch::arange(8, torch::kFloat)));
  views.right.zero_();
  EXPECT_EQ(views.left[1].abs().sum().item<float>(), 0) << "the halves overlap as before";
  EXPECT_EQ(views.left[0].sum().item<float>(), 6);
}

TEST_F(SmallModel, NeedsAFolderForWhatNoFileHolds) {
  expect_error(ErrorKind::kUsage, HasSubstr("linear1.weight"), [&] {
    place_model(model, DeviceMap{{"", kDiskDevice}});
  });
  expect_error(ErrorKind::kUsage, HasSubstr("linear2"), [&] {
    place_model(model, DeviceMap{{"linear1", kCpuDevice}});
  });
  expect_error(ErrorKind::kUsage, HasSubstr("'nowhere'"), [&] {
    place_model(model, DeviceMap{{"", kCpuDevice}, {"nowhere", kCpuDevice}});
  });
  EXPECT_TRUE(model->forward(input).equal(expected));
}

TEST_F(SmallModel, GivesItsMemoryBackWithItsLastTensor) {
  at::Tensor weight;
  {
    Small loaded = empty();
    load_checkpoint_in_model(loaded, checkpoint.path(), DeviceMap{{"", kDiskDevice}});
    weight = loaded->linear1->weight.detach();
  }
  EXPECT_TRUE(weight.clone().equal(model->linear1->weight)) << "the tensor outlives the model";
}

}  // namespace
}  // namespace haul
