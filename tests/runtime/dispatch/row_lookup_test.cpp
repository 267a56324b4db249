// Tables on disk of which the CPU reads the rows that it needs.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

namespace nn = torch::nn;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kRows = 3000;
constexpr std::int64_t kWidth = 24;  // rows begin anywhere in a sector

struct TalkerImpl : nn::Module {
  TalkerImpl() {
    table = register_module("table", nn::Embedding(kRows, kWidth));
    head = register_module("head", nn::Linear(kWidth, 5));
  }
  at::Tensor forward(const at::Tensor& ids) { return head(table(ids)); }
  nn::Embedding table{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Talker);

class TableOnDisk : public testing::Test {
 protected:
  TableOnDisk() {
    torch::manual_seed(5);
    model = Talker();
    save_model(model, checkpoint.path());
    const EmptyWeights scope;
    loaded = Talker();
  }

  void load() {
    LoadOptions options;
    options.max_memory = parse_max_memory("cpu=64KB");  // far less than the table has
    load_checkpoint_and_dispatch(loaded, checkpoint.path(),
                                 DeviceMap{{"table", kDiskDevice}, {"head", kCpuDevice}}, options);
  }

  Talker model{nullptr}, loaded{nullptr};
  test::TemporaryFolder checkpoint;
};

TEST_F(TableOnDisk, GivesTheSameBitsAndReadsRowsAlone) {
  load();
  const at::Tensor ids = torch::tensor({{7, 2999, 7}, {0, 1, 1234}});
  EXPECT_TRUE(loaded->table(ids).equal(model->table(ids)));
  const DispatchReport report = dispatch_report(loaded);
  EXPECT_EQ(report.bytes_moved, 5U * kWidth * sizeof(float)) << "each row once";
  EXPECT_EQ(report.leases, 0U);
  EXPECT_TRUE(loaded->forward(ids).equal(model->forward(ids)));
  EXPECT_EQ(dispatch_report(loaded).unplanned, 0U);
}

TEST_F(TableOnDisk, TakesMoreRowsThanAreReadAtOnceAndNone) {
  load();
  const at::Tensor ids = torch::randint(0, kRows, {4, 500});
  EXPECT_TRUE(loaded->table(ids).equal(model->table(ids)));
  const at::Tensor small = ids.to(torch::kInt);
  EXPECT_TRUE(loaded->table(small).equal(model->table(small)));
  const at::Tensor none = torch::empty({2, 0}, torch::kLong);
  EXPECT_EQ(loaded->table(none).sizes(), model->table(none).sizes());
}

TEST_F(TableOnDisk, RefusesIdsThatItDoesNotHave) {
  load();
  for (const std::int64_t id : {kRows, std::int64_t{-1}}) {
    EXPECT_THROW(loaded->table(torch::tensor({id})), c10::IndexError) << id;
  }
}

TEST_F(TableOnDisk, HasGradientsAndTheValuesThatAreWritten) {
  load_checkpoint_and_dispatch(loaded, checkpoint.path(), DeviceMap{{"", kDiskDevice}});
  const at::Tensor ids = torch::tensor({3, 9, 3});
  const auto train = [&](Talker& talker) {
    torch::optim::SGD optimizer(talker->parameters(), torch::optim::SGDOptions(0.5));
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      talker->forward(ids).pow(2).sum().backward();
      optimizer.step();
    }
    return talker->forward(ids).detach();
  };
  EXPECT_TRUE(train(loaded).equal(train(model)));
}

TEST_F(TableOnDisk, SaysWhichWeightAndFileFailed) {
  load();
  std::filesystem::resize_file(checkpoint.path() / "model.safetensors", 100);
  test::expect_error(ErrorKind::kCorrupt,
                     AllOf(HasSubstr("table.weight"), HasSubstr("model.safetensors")),
                     [&] { loaded->forward(torch::tensor({5})); });
}

TEST_F(TableOnDisk, RefusesIdsThatAreNoWholeNumbers) {
  load();
  EXPECT_THROW(loaded->table(torch::tensor({1.5F})), c10::Error);
}

TEST_F(TableOnDisk, WritesToWhereItIsTold) {
  load_checkpoint_and_dispatch(loaded, checkpoint.path(), DeviceMap{{"", kDiskDevice}});
  const at::NoGradGuard no_gradients;
  const at::Tensor ids = torch::tensor({3, 9});
  at::Tensor out = torch::empty({2, kWidth});
  at::embedding_out(out, loaded->table->weight, ids);
  EXPECT_TRUE(out.equal(model->table(ids)));
}

// Ids that are the model's own, and away as well.
struct PlacesImpl : nn::Module {
  PlacesImpl() {
    table = register_module("table", nn::Embedding(kRows, kWidth));
    places = register_buffer("places", torch::arange(kRows).unsqueeze(0));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor begin = places.slice(1, 0, x.size(1));
    return table(begin) + table(begin.expand({x.size(0), x.size(1)})) + x.unsqueeze(-1);
  }
  nn::Embedding table{nullptr};
  at::Tensor places;
};
TORCH_MODULE(Places);

TEST_F(TableOnDisk, BringsIdsThatLieOnDisk) {
  const test::TemporaryFolder folder;
  Places plain;
  Places offloaded;
  offloaded->table->weight.set_data(plain->table->weight.clone());
  LoadOptions options;
  options.offload_buffers = true;
  disk_offload(offloaded, folder.path(), options);
  const at::Tensor x = torch::randn({2, 7});
  EXPECT_TRUE(offloaded->forward(x).equal(plain->forward(x)));
}

TEST_F(TableOnDisk, IsSavedAndMadeOrdinaryWithinItsBudget) {
  load();
  const test::TemporaryFolder folder;
  save_model(loaded, folder.path());
  const auto bytes = [](const std::filesystem::path& path) {
    std::ifstream file(path / "model.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(bytes(folder.path()), bytes(checkpoint.path()));
  EXPECT_EQ(dispatch_report(loaded).unplanned, 0U);
  undispatch(loaded);
  EXPECT_TRUE(loaded->table->weight.equal(model->table->weight));
}

// What is read whole needs all of it, wherever it lies.
TEST_F(TableOnDisk, ComesWholeForOpsThatNeedAll) {
  load_checkpoint_and_dispatch(loaded, checkpoint.path(), DeviceMap{{"", kDiskDevice}});
  EXPECT_TRUE(loaded->table->weight.sum().equal(model->table->weight.sum()));
}

}  // namespace
}  // namespace haul
