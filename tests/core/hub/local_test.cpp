#include "core/hub/local.h"

#include <gtest/gtest.h>

#include "core/hub/resolve.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::HasSubstr;

constexpr const char* kIndex =
    R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
                       "b": "model-00002-of-00002.safetensors"}})";

class LocalModel : public testing::Test {
 protected:
  std::string path(const std::string& name = "") const { return folder_.path() / name; }

  test::TemporaryFolder folder_;
};

TEST_F(LocalModel, AFolderGivesItsConfigAndWeights) {
  folder_.write("config.json", R"({"model_type": "gpt2"})");
  folder_.write("model.safetensors", "x");
  const ModelFiles files = resolve_model(folder_.path());
  EXPECT_EQ(files.name, folder_.path());
  EXPECT_EQ(files.folder, folder_.path());
  EXPECT_EQ(files.config, path("config.json"));
  EXPECT_EQ(files.checkpoint, folder_.path());
  EXPECT_EQ(files.library, "transformers");
}

TEST_F(LocalModel, AFolderWithAConfigAloneHasNoCheckpoint) {
  folder_.write("config.json", R"({"architecture": "resnet50", "num_classes": 1000})");
  folder_.write("training_args.bin", "x");
  const ModelFiles files = resolve_model(folder_.path());
  EXPECT_TRUE(files.checkpoint.empty());
  EXPECT_EQ(files.library, "timm");
}

TEST_F(LocalModel, ShardsCountOnlyWhenAllAreThere) {
  folder_.write("config.json", "{}");
  folder_.write("model.safetensors.index.json", kIndex);
  folder_.write("model-00001-of-00002.safetensors", "x");
  EXPECT_TRUE(files_in_folder(folder_.path()).checkpoint.empty());
  folder_.write("model-00002-of-00002.safetensors", "x");
  EXPECT_EQ(files_in_folder(folder_.path()).checkpoint, folder_.path());
}

TEST_F(LocalModel, ACheckpointFileBringsTheConfigBesideIt) {
  folder_.write("config.json", "{}");
  for (const char* name : {"a.safetensors", "b.bin", "c.pt", "d.pth", "e.index.json"}) {
    folder_.write(name, "x");
    const ModelFiles files = resolve_model(path(name));
    EXPECT_EQ(files.checkpoint, path(name));
    EXPECT_EQ(files.config, path("config.json"));
  }
}

TEST_F(LocalModel, AGgufFileStandsForItself) {
  folder_.write("config.json", R"({"model_type": "llama"})");
  folder_.write("m.gguf", "x");
  for (const std::string& name : {path("m.gguf"), folder_.path().string()}) {
    const ModelFiles files = resolve_model(name);
    EXPECT_EQ(files.checkpoint, path("m.gguf"));
    EXPECT_TRUE(files.config.empty());
  }
  folder_.write("n.gguf", "x");
  test::expect_error(ErrorKind::kUsage, HasSubstr("several GGUF files: m.gguf, n.gguf"),
                     [&] { resolve_model(folder_.path()); });
}

TEST_F(LocalModel, AConfigStandsForItselfAlone) {
  folder_.write("config.json", "{}");
  folder_.write("model.safetensors", "x");
  const ModelFiles files = resolve_model(path("config.json"));
  EXPECT_EQ(files.config, path("config.json"));
  EXPECT_TRUE(files.checkpoint.empty());
}

TEST_F(LocalModel, WhatIsNoModelIsNamed) {
  folder_.write("notes.txt", "x");
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("notes.txt"),
                     [&] { resolve_model(path("notes.txt")); });
  test::expect_error(ErrorKind::kNotFound, HasSubstr("neither a config.json nor weights"),
                     [&] { resolve_model(folder_.path()); });
  for (const char* name : {"./absent", "/absent/model", "a/b/c", "absent.safetensors", ""}) {
    test::expect_error(ErrorKind::kNotFound, HasSubstr("no such file or folder"),
                       [&] { resolve_model(name); });
  }
}

}  // namespace
}  // namespace haul::core
