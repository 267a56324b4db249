#include "haul/torch/align_module_device.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "haul/torch/empty_weights.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;

struct NetImpl : nn::Module {
  NetImpl() {
    first = register_module("first", nn::Linear(6, 6));
    rest = register_module("rest", nn::Sequential(nn::Linear(6, 6), nn::Linear(6, 6)));
    tied = register_parameter("tied", first->weight);
    table = register_buffer("table", torch::ones({6}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return rest->forward(first(x)).matmul(tied).mul(table);
  }
  nn::Linear first{nullptr};
  nn::Sequential rest{nullptr};
  at::Tensor tied, table;
};
TORCH_MODULE(Net);

bool is_resident(const at::Tensor& tensor) {
  return tensor.storage().data() != nullptr;
}

class Align : public testing::Test {
 protected:
  Align() {
    torch::manual_seed(10);
    net = Net();
    x = torch::randn({2, 6});
    expected = net->forward(x).detach();
    weight = net->first->weight.detach().clone();
    disk_offload(net, folder.path());
  }
  // Of all tiers: weights that were written to are kept in RAM.
  Bytes used() const {
    Bytes bytes = 0;
    for (const TierUse& tier : dispatch_report(net).tiers) bytes += tier.used;
    return bytes;
  }

  test::TemporaryFolder folder;
  Net net{nullptr};
  at::Tensor x, expected, weight;
};

TEST_F(Align, BringsAModuleInForAMoment) {
  ASSERT_FALSE(is_resident(net->first->weight));
  const Bytes before = used();
  {
    const AlignModuleDevice scope(net->first);
    const auto* const values = net->first->weight.data_ptr<float>();
    for (int i = 0; i < 36; ++i) EXPECT_EQ(values[i], weight.flatten()[i].item<float>());
    EXPECT_TRUE(is_resident(net->first->bias));
    EXPECT_FALSE(is_resident(net->rest->parameters()[0])) << "and no other";
    EXPECT_EQ(net->tied.data_ptr(), net->first->weight.data_ptr()) << "tied stays tied";
    EXPECT_TRUE(net->forward(x).equal(expected)) << "the model runs meanwhile";
  }
  EXPECT_FALSE(is_resident(net->first->weight));
  EXPECT_EQ(used(), before) << "what was only read is not kept";
  EXPECT_TRUE(net->forward(x).equal(expected));
}

TEST_F(Align, BringsAllThatLiesBelow) {
  const AlignModuleDevice outer(net);
  for (const at::Tensor& tensor : net->parameters()) EXPECT_TRUE(is_resident(tensor));
  const AlignModuleDevice inner(net->first);
  EXPECT_TRUE(net->forward(x).equal(expected));
}

TEST_F(Align, KeepsWhatIsWritten) {
  const auto change = [](const Net& to) {
    const at::NoGradGuard no_gradients;
    to->first->weight.data_ptr<float>()[7] = 5;  // no op sees this
    to->first->bias.fill_(std::numeric_limits<float>::infinity());
    to->rest->parameters()[0].set_data(torch::full({6, 6}, 0.5));
  };
  {
    const AlignModuleDevice scope(net);
    change(net);
  }
  EXPECT_FALSE(is_resident(net->first->weight));
  Net plain;
  {
    const at::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
      plain->parameters()[i].copy_(net->parameters()[i]);
    }
  }
  EXPECT_EQ(plain->tied[1][1].item<float>(), 5);
  EXPECT_TRUE(plain->first->bias.isinf().all().item<bool>());
  EXPECT_EQ(plain->rest->parameters()[0].sum().item<float>(), 18);
  undispatch(net);
  EXPECT_EQ(net->first->weight[1][1].item<float>(), 5);
}

TEST_F(Align, KeepsNothingOfWhatItCannotAndSaysSo) {
  {
    const at::NoGradGuard no_gradients;
    EXPECT_THROW(
        {
          const AlignModuleDevice scope(net->first);
          net->first->bias.set_data(torch::zeros({3}));
        },
        c10::Error);
  }
  EXPECT_FALSE(is_resident(net->first->bias));
  EXPECT_TRUE(net->forward(x).equal(expected)) << "the model is as it was";
  // An exception that passes through is the one that arrives.
  try {
    const AlignModuleDevice scope(net->first);
    net->first->bias.set_data(torch::zeros({3}));
    throw std::runtime_error("the first");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the first");
  }
  EXPECT_TRUE(net->forward(x).equal(expected));
}

TEST_F(Align, GradientsReachParametersThatWereBroughtIn) {
  net->forward(x).sum().backward();
  const at::Tensor gradient = net->first->weight.grad().clone();
  net->zero_grad();
  at::Tensor output;
  {
    const AlignModuleDevice scope(net->first);
    output = net->forward(x);
  }
  output.sum().backward();
  EXPECT_TRUE(net->first->weight.grad().equal(gradient));
}

TEST_F(Align, ReadsModelsThatWereMadeUnderInferenceMode) {
  Net other{nullptr};
  {
    const c10::InferenceMode inference;
    other = Net();
    disk_offload(other, folder.path());
  }
  const float before = other->first->bias[0].item<float>();
  {
    const AlignModuleDevice scope(other->first);
    EXPECT_EQ(other->first->bias.data_ptr<float>()[0], before);
    other->first->bias.data_ptr<float>()[0] = 3;
  }
  EXPECT_EQ(other->first->bias[0].item<float>(), 3);
}

TEST_F(Align, LeavesOrdinaryModulesAsTheyAreAndRefusesEmptyOnes) {
  Net plain;
  const void* const memory = plain->first->weight.const_data_ptr();
  {
    const AlignModuleDevice scope(plain);
    EXPECT_EQ(plain->first->weight.const_data_ptr(), memory);
  }
  const Net empty = [] {
    const EmptyWeights scope;
    return Net();
  }();
  test::expect_error(ErrorKind::kUsage, HasSubstr("'tied' has no value"),
                     [&] { const AlignModuleDevice scope(empty); });
}

TEST_F(Align, SaysWhichWeightCannotBeHadAndChangesNothing) {
  const auto file = std::filesystem::directory_iterator(folder.path())->path();
  const auto away = folder.path() / "away";
  std::filesystem::rename(file, away);
  test::expect_error(ErrorKind::kCorrupt, HasSubstr(file.filename().string()),
                     [&] { const AlignModuleDevice scope(net); });
  EXPECT_FALSE(is_resident(net->first->weight));
  std::filesystem::rename(away, file);
  EXPECT_TRUE(net->forward(x).equal(expected));
}

}  // namespace
}  // namespace haul
