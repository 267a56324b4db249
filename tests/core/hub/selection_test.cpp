#include "core/hub/selection.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<HubFile> files(std::initializer_list<const char*> names) {
  std::vector<HubFile> result;
  for (const char* name : names) result.push_back({name, 1, ""});
  return result;
}

std::vector<std::string> names(const std::vector<HubFile>& list) {
  std::vector<std::string> result;
  result.reserve(list.size());
  for (const HubFile& file : list) result.push_back(file.name);
  return result;
}

TEST(Selection, SafetensorsArePreferredAndTheRestIsTold) {
  const Selection selection = select_for_download(
      files({"config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5",
             "flax_model.msgpack", "onnx/model.onnx", "original/consolidated.00.pth",
             "training_args.bin", "consolidated.safetensors"}),
      {}, {});
  EXPECT_THAT(names(selection.files),
              ElementsAre("config.json", "model.safetensors", "training_args.bin"));
  EXPECT_EQ(selection.skipped.size(), 6u);
}

TEST(Selection, PicklesAreTakenWhereTheyAreTheOnlyWeights) {
  const Selection selection =
      select_for_download(files({"pytorch_model.bin", "tf_model.h5"}), {}, {});
  EXPECT_THAT(names(selection.files), ElementsAre("pytorch_model.bin"));
}

TEST(Selection, PatternsReachIntoFolders) {
  const auto all = files({"a.json", "sub/b.json", "sub/c.bin", "d.txt"});
  EXPECT_THAT(names(select_for_download(all, {"*.json"}, {}).files),
              ElementsAre("a.json", "sub/b.json"));
  EXPECT_THAT(names(select_for_download(all, {"sub/"}, {"*.bin"}).files),
              ElementsAre("sub/b.json"));
  EXPECT_THAT(names(select_for_download(all, {"[ad].*"}, {}).files),
              ElementsAre("a.json", "d.txt"));
}

TEST(Selection, ARunTakesTheTopFoldersTextsAndOneFormatOfWeights) {
  EXPECT_THAT(names(select_for_run(files({"README.md", "config.json", "model-1-of-1.safetensors",
                                          "model.safetensors.index.json", "pytorch_model.bin",
                                          "pytorch_model.bin.index.json", "q.gguf", "sub/x.json",
                                          "tokenizer.model"}),
                                   "m")),
              ElementsAre("config.json", "model-1-of-1.safetensors", "model.safetensors.index.json",
                          "tokenizer.model"));
  EXPECT_THAT(
      names(select_for_run(
          files({"1_Pooling/config.json", "modules.json", "onnx/1_Pooling/config.json"}), "m")),
      ElementsAre("modules.json", "1_Pooling/config.json"));
  EXPECT_THAT(names(select_for_run(files({"config.json", "q.gguf"}), "m")),
              ElementsAre("config.json", "q.gguf"));
  test::expect_error(ErrorKind::kUsage, HasSubstr("m: holds 2 GGUF files: p.gguf, q.gguf"), [] {
    select_for_run(files({"p.gguf", "q.gguf"}), "m");
  });
}

}  // namespace
}  // namespace haul::core
