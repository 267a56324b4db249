// Checkpoints that are not whole, found out at load.

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "tests/runtime/dispatch/layers.h"
#include "tests/support/expect_error.h"
#include "tests/support/pickle_builder.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/zip_builder.h"

namespace haul {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class CheckpointFaults : public testing::Test {
 protected:
  CheckpointFaults() {
    model = test::layers(13);
    expected = test::output_of(model);
  }
  static torch::nn::Sequential empty() {
    const EmptyWeights scope;
    return test::layers(0);
  }
  static LoadOptions quiet() {
    LoadOptions options;
    options.log = [](const std::string&) {};
    return options;
  }
  // As torch.save writes it.
  fs::path save_zip() const {
    namespace pickled = test::pickled;
    test::ZipBuilder zip;
    pickled::Entries entries;
    for (const auto& item : model->named_parameters()) {
      const at::Tensor& value = item.value();
      const std::string key = std::to_string(entries.size());
      entries.emplace_back(pickled::text(item.key()),
                           pickled::tensor(pickled::storage("FloatStorage", key, value.numel()), 0,
                                           value.sizes().vec(), value.strides().vec()));
      zip.parts.push_back({"archive/data/" + key,
                           {static_cast<const char*>(value.const_data_ptr()), value.nbytes()}});
    }
    zip.parts.insert(zip.parts.begin(),
                     {"archive/data.pkl", pickled::whole(pickled::ordered_dict(entries))});
    zip.parts.push_back({"archive/version", "3\n"});
    return folder.write("pytorch_model.bin", zip.build());
  }
  // A folder of one shard a layer.
  fs::path save_shards() const {
    fs::path shards = folder.path() / "shards";
    save_model(model, shards, test::kLayersBytes / test::kLayers + 1000);
    return shards;
  }

  // The failed load has left both a model with values and an empty one as they were: the first
  // computes, and a whole checkpoint can be loaded into either.
  void expect_fault(ErrorKind kind, const testing::Matcher<const std::string&>& message,
                    const fs::path& checkpoint, const LoadOptions& options,
                    const std::function<void()>& repair) const {
    for (const Device device : {kCpuDevice, kDiskDevice}) {
      SCOPED_TRACE(to_string(device));
      torch::nn::Sequential other = test::layers(14);
      const double before = test::output_of(other);
      torch::nn::Sequential loaded = empty();
      for (torch::nn::Sequential& into : {std::ref(other), std::ref(loaded)}) {
        test::expect_error(kind, message, [&] {
          load_checkpoint_in_model(into, checkpoint, DeviceMap{{"", device}}, options);
        });
      }
      EXPECT_EQ(test::output_of(other), before);
      EXPECT_TRUE(loaded->parameters()[0].is_meta());
    }
    repair();
    torch::nn::Sequential loaded = empty();
    LoadOptions again = quiet();
    again.offload_folder = options.offload_folder;
    load_checkpoint_in_model(loaded, checkpoint, DeviceMap{{"", kDiskDevice}}, again);
    EXPECT_EQ(test::output_of(loaded), expected);
  }

  test::TemporaryFolder folder{fs::current_path()};  // on a disk
  torch::nn::Sequential model{nullptr};
  double expected = 0;
};

TEST_F(CheckpointFaults, SafetensorsThatWereCutShortAreNamed) {
  save_model(model, folder.path());
  const fs::path file = folder.path() / "model.safetensors";
  const fs::path whole = folder.path() / "whole";
  for (const Bytes size :
       {fs::file_size(file) - 1, fs::file_size(file) / 2, Bytes{700}, Bytes{9}, Bytes{0}}) {
    SCOPED_TRACE(size);
    fs::copy_file(file, whole);
    fs::resize_file(file, size);
    expect_fault(ErrorKind::kCorrupt, HasSubstr(file.string()), file, {},
                 [&] { fs::rename(whole, file); });
  }
}

TEST_F(CheckpointFaults, TorchFilesThatWereCutShortAreNamed) {
  const fs::path file = save_zip();
  const fs::path whole = folder.path() / "whole";
  LoadOptions options;
  options.offload_folder = folder.path() / "offload";
  for (const Bytes size : {fs::file_size(file) - 1, fs::file_size(file) / 2, Bytes{9}, Bytes{0}}) {
    SCOPED_TRACE(size);
    fs::copy_file(file, whole);
    fs::resize_file(file, size);
    expect_fault(ErrorKind::kCorrupt, HasSubstr(file.string()), file, options,
                 [&] { fs::rename(whole, file); });
  }
}

TEST_F(CheckpointFaults, AShardThatIsMissingIsNamed) {
  const fs::path shards = save_shards();
  const fs::path shard = shards / "model-00003-of-00004.safetensors";
  ASSERT_TRUE(fs::exists(shard));
  fs::rename(shard, folder.path() / "away");
  expect_fault(ErrorKind::kNotFound, HasSubstr(shard.filename().string()), shards, {},
               [&] { fs::rename(folder.path() / "away", shard); });
}

// After its headers are read, before its data is: that is when remarks are made.
class DuringTheLoad : public CheckpointFaults {
 protected:
  DuringTheLoad() {
    model->push_back(torch::nn::Linear(2, 2));  // which the empty model lacks
    shards = save_shards();
    shard = shards / "model-00003-of-00004.safetensors";
    if (!fs::exists(shard)) ADD_FAILURE() << shard;
  }
  fs::path shards, shard;
};

TEST_F(DuringTheLoad, AShardThatCannotBeOpenedIsNamedAndNoReadIsLeftBehind) {
  LoadOptions options;
  const fs::path away = folder.path() / "away";
  options.log = [&](const std::string&) {
    if (fs::exists(shard)) fs::rename(shard, away);
  };
  for (int turn = 0; turn < 5; ++turn) {
    torch::nn::Sequential loaded = empty();
    test::expect_error(
        ErrorKind::kNotFound, AllOf(HasSubstr(shard.string()), HasSubstr("weight '")), [&] {
          load_checkpoint_in_model(loaded, shards, DeviceMap{{"", kCpuDevice}}, options);
        });
    EXPECT_TRUE(loaded->parameters()[0].is_meta());
    fs::rename(away, shard);
    load_checkpoint_in_model(loaded, shards, DeviceMap{{"", kCpuDevice}}, quiet());
    EXPECT_EQ(test::output_of(loaded), expected);
  }
}

TEST_F(DuringTheLoad, AShardThatLosesItsEndIsNamed) {
  const fs::path whole = folder.path() / "whole";
  fs::copy_file(shard, whole);
  LoadOptions options;
  options.log = [&](const std::string&) { fs::resize_file(shard, fs::file_size(shard) - 5000); };
  torch::nn::Sequential loaded = empty();
  test::expect_error(
      ErrorKind::kCorrupt, AllOf(HasSubstr(shard.string()), HasSubstr("weight '")), [&] {
        load_checkpoint_in_model(loaded, shards, DeviceMap{{"", kCpuDevice}}, options);
      });
  EXPECT_TRUE(loaded->parameters()[0].is_meta());
  fs::rename(whole, shard);
  load_checkpoint_in_model(loaded, shards, DeviceMap{{"", kCpuDevice}}, quiet());
  EXPECT_EQ(test::output_of(loaded), expected);
}

}  // namespace
}  // namespace haul
