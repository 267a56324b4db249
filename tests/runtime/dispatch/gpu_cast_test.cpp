#include <cstdint>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;

// Two pieces of what comes from a file and a part of a third, and weights too small for one.
struct NumbersImpl : nn::Module {
  explicit NumbersImpl(c10::ScalarType type = c10::ScalarType::Float) {
    large = register_parameter("large", torch::empty({9'000'001}, type), false);
    small = register_parameter("small", torch::empty({1'003}, type), false);
  }
  at::Tensor large;
  at::Tensor small;
};

// Words from all over a type's range, subnormals and infinities among them; no NaN, which keeps no
// bits.
at::Tensor words_of(c10::ScalarType type, std::int64_t count) {
  const at::Tensor places = torch::arange(count, torch::kLong);
  at::Tensor words;
  switch (c10::elementSize(type)) {
    case 2:
      words = (places * 7).to(torch::kShort).view(type);
      break;
    case 4:
      words = (places * 2'654'435'761).to(torch::kInt).view(type);
      break;
    default:
      words = (places * 7'046'029'254'386'353'131).view(type);
  }
  return torch::where(words.isnan(), torch::full({}, 1.5, type), words);
}

class GpuCasts : public testing::TestWithParam<c10::ScalarType> {};

TEST_P(GpuCasts, GiveTheBitsOfTheCpus) {
  NumbersImpl stored(GetParam());
  stored.large.copy_(words_of(GetParam(), stored.large.numel()));
  stored.small.copy_(words_of(GetParam(), stored.small.numel()));
  const test::TemporaryFolder checkpoint;
  save_model(stored, checkpoint.path());
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16, Dtype::kF32}) {
    const auto loaded = [&](Device device) {
      std::shared_ptr<NumbersImpl> model;
      {
        const EmptyWeights scope;
        model = std::make_shared<NumbersImpl>();
      }
      LoadOptions options;
      options.dtype = dtype;
      options.log = [](const std::string&) {};
      load_checkpoint_in_model(*model, checkpoint.path(), DeviceMap{{"", device}}, options);
      return model;
    };
    const auto here = loaded(kCpuDevice);
    const auto there = loaded(gpu(0));
    EXPECT_TRUE(there->large.is_cuda());
    for (const auto& [on_cpu, on_gpu] :
         {std::pair(here->large, there->large), std::pair(here->small, there->small)}) {
      const auto bits = c10::elementSize(on_cpu.scalar_type()) == 2 ? torch::kShort : torch::kInt;
      EXPECT_EQ(on_gpu.scalar_type(), on_cpu.scalar_type());
      EXPECT_TRUE(on_gpu.cpu().view(bits).equal(on_cpu.view(bits)));
    }
  }
}

at::Tensor loaded_with(const std::string& memory, const std::filesystem::path& checkpoint,
                       Dtype dtype) {
  std::shared_ptr<NumbersImpl> model;
  {
    const EmptyWeights scope;
    model = std::make_shared<NumbersImpl>();
  }
  LoadOptions options;
  options.dtype = dtype;
  options.max_memory = parse_max_memory(memory);
  options.log = [](const std::string&) {};
  load_checkpoint_in_model(*model, checkpoint, DeviceMap{{"", gpu(0)}}, options);
  return model->large.cpu();
}

TEST(GpuCast, NeedsNoMoreRamThanItsBudget) {
  NumbersImpl stored(c10::ScalarType::Half);
  stored.large.copy_(words_of(c10::ScalarType::Half, stored.large.numel()));
  stored.small.fill_(1);
  const test::TemporaryFolder checkpoint;
  save_model(stored, checkpoint.path());
  for (const char* const ram : {"0MB", "8MB", "16800000", "20MB", "40MB"}) {
    const std::string memory = std::string("0=1GB,cpu=") + ram;
    EXPECT_TRUE(loaded_with(memory, checkpoint.path(), Dtype::kBF16)
                    .equal(stored.large.to(torch::kBFloat16)))
        << ram;
  }
  for (const char* const memory : {"0=1GB,cpu=20MB", "0=1GB,cpu=40MB"}) {
    EXPECT_TRUE(loaded_with(memory, checkpoint.path(), Dtype::kF16).equal(stored.large)) << memory;
  }
}

TEST(GpuLoad, TakesTensorsWithoutElements) {
  struct HollowImpl : nn::Module {
    HollowImpl() {
      large = register_parameter("large", torch::ones({1024, 1024}), false);
      none = register_buffer("none", torch::empty({0}));
    }
    at::Tensor large;
    at::Tensor none;
  };
  const test::TemporaryFolder checkpoint;
  HollowImpl model;
  save_model(model, checkpoint.path());
  model.large.zero_();
  LoadOptions options;
  options.log = [](const std::string&) {};
  load_checkpoint_in_model(model, checkpoint.path(), DeviceMap{{"", gpu(0)}}, options);
  EXPECT_TRUE(model.large.is_cuda());
  EXPECT_EQ(model.large.sum().item<float>(), 1024 * 1024);
  EXPECT_EQ(model.none.numel(), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, GpuCasts,
                         testing::Values(c10::ScalarType::Half, c10::ScalarType::BFloat16,
                                         c10::ScalarType::Float, c10::ScalarType::Double),
                         [](const auto& type) { return c10::toString(type.param); });

}  // namespace
}  // namespace haul
