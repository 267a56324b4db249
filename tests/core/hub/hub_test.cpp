#include <fstream>

#include <gtest/gtest.h>

#include "core/base/file.h"
#include "tests/core/hub/hub_fixture.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST_F(HubTest, AnEstimateFetchesTheConfigAlone) {
  const ModelFiles files = resolve(Need::kConfigOnly);
  EXPECT_EQ(read_file(files.config, 1000), model().files["config.json"].content);
  EXPECT_EQ(files.library, "transformers");
  EXPECT_TRUE(files.checkpoint.empty());
  EXPECT_EQ(server_.requests().size(), 2u);
  EXPECT_EQ(server_.fetches("model.safetensors"), 0u);
}

TEST_F(HubTest, WhatIsInTheCacheIsNotAskedForAgain) {
  resolve(Need::kAll);
  const std::size_t before = server_.requests().size();
  const ModelFiles files = resolve(Need::kAll);
  EXPECT_EQ(read_file(files.checkpoint / "model.safetensors", kGiB), weights());
  resolve(Need::kHeaders);
  resolve(Need::kConfigOnly, "org/tiny@" + model().commit);
  EXPECT_EQ(server_.requests().size(), before);
}

TEST_F(HubTest, TheCacheHasTheLayoutOfHuggingfaceHub) {
  download();
  EXPECT_EQ(read_file(cache("refs/main"), 100), model().commit);
  const fs::path link = cache("snapshots/" + model().commit + "/model.safetensors");
  EXPECT_EQ(fs::read_symlink(link), "../../blobs/" + test::sha256_of(weights()));
  const std::string config = model().files["config.json"].content;
  EXPECT_TRUE(fs::exists(cache("blobs/" + test::git_sha1_of(config))));
  for (const auto& entry : fs::directory_iterator(cache("blobs"))) {
    EXPECT_NE(entry.path().extension(), ".incomplete");
  }
}

TEST_F(HubTest, FilesInFoldersAreLinkedFromTheirDepth) {
  model().files["a/b/c.txt"] = {"deep", false};
  const Snapshot snapshot = download();
  EXPECT_EQ(fs::read_symlink(snapshot.folder / "a/b/c.txt"),
            "../../../../blobs/" + test::git_sha1_of("deep"));
  EXPECT_EQ(read_file(snapshot.folder / "a/b/c.txt", 10), "deep");
}

TEST_F(HubTest, HeadersComeByRangeWithoutTheData) {
  const ModelFiles files = resolve(Need::kHeaders);
  ASSERT_EQ(files.remote_tensors.size(), 1u);
  EXPECT_EQ(files.remote_tensors[0].name, "w");
  EXPECT_EQ(files.remote_tensors[0].shape, Shape{50'000});
  EXPECT_TRUE(files.checkpoint.empty());
  for (const test::ServerRequest& request : server_.requests()) {
    if (!request.is_file("model.safetensors")) continue;
    EXPECT_EQ(request.has("range") ? request.headers.at("range") : "", "bytes=0-65535");
  }
}

TEST_F(HubTest, HeadersOfShardsFollowTheIndex) {
  model().files.erase("model.safetensors");
  model().files["a.safetensors"] = {one_tensor_file("a", 10), true};
  model().files["b.safetensors"] = {one_tensor_file("b", 20), true};
  model().files["other.safetensors"] = {one_tensor_file("c", 30), true};
  model().files["model.safetensors.index.json"] = {
      R"({"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}})", false};
  const ModelFiles files = resolve(Need::kHeaders);
  ASSERT_EQ(files.remote_tensors.size(), 2u);
  EXPECT_EQ(files.remote_tensors[0].name, "a");
  EXPECT_EQ(files.remote_tensors[1].name, "b");
  EXPECT_EQ(server_.fetches("other.safetensors"), 0u);
}

TEST_F(HubTest, ALongHeaderIsFetchedWhole) {
  std::string json = "{";
  for (int i = 0; i < 3000; ++i) {
    json += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) +
            R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  json += "}";
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(json.size() >> (8 * i));
  model().files["model.safetensors"] = {file + json, true};
  EXPECT_EQ(resolve(Need::kHeaders).remote_tensors.size(), 3000u);
  EXPECT_EQ(server_.fetches("model.safetensors"), 2u);
}

TEST_F(HubTest, HeadersComeAlsoFromAServerWithoutRanges) {
  server_.alter = [](const test::ServerRequest&, test::ServerAnswer& answer) {
    answer.ranges = false;
  };
  EXPECT_EQ(resolve(Need::kHeaders).remote_tensors.size(), 1u);
}

TEST_F(HubTest, AModelWithoutAConfigIsRememberedSo) {
  model().files = {{"model.gguf", {"x", true}}};
  EXPECT_TRUE(resolve(Need::kConfigOnly).config.empty());
  EXPECT_TRUE(fs::exists(cache(".no_exist/" + model().commit + "/config.json")));
  const ModelFiles files = resolve(Need::kAll);
  EXPECT_EQ(files.checkpoint.filename(), "model.gguf");
}

TEST_F(HubTest, ADownloadBringsANewerVersion) {
  download();
  model().commit = std::string(40, 'd');
  model().files["config.json"].content = R"({"model_type": "bert"})";
  EXPECT_THAT(read_file(resolve(Need::kConfigOnly).config, 1000), HasSubstr("gpt2"));
  const Snapshot snapshot = download();
  EXPECT_EQ(server_.fetches("model.safetensors"), 1u) << "the same content is linked, not fetched";
  EXPECT_THAT(read_file(resolve(Need::kConfigOnly).config, 1000), HasSubstr("bert"));
  EXPECT_EQ(snapshot.commit, model().commit);
}

TEST_F(HubTest, SecondCopiesOfTheWeightsAreSkipped) {
  model().files["pytorch_model.bin"] = {"pickle", true};
  const Snapshot snapshot = download();
  ASSERT_EQ(snapshot.skipped.size(), 1u);
  EXPECT_EQ(snapshot.skipped[0].name, "pytorch_model.bin");
  EXPECT_EQ(server_.fetches("pytorch_model.bin"), 0u);
  SnapshotOptions options;
  options.include = {"*.bin"};
  EXPECT_EQ(download(options).files.size(), 1u);
  EXPECT_EQ(server_.fetches("pytorch_model.bin"), 1u);
}

TEST_F(HubTest, TheTokenGoesToTheHubAndNeverToAnotherHost) {
  download();
  bool storage_asked = false;
  for (const test::ServerRequest& request : server_.requests()) {
    storage_asked = storage_asked || request.storage;
    EXPECT_EQ(request.has("authorization"), !request.storage) << request.path;
    if (request.storage) continue;
    EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_secret");
  }
  EXPECT_TRUE(storage_asked);
}

TEST_F(HubTest, ARenamedModelIsFollowedOnTheHubItself) {
  server_.models["old"].commit = model().commit;
  server_.alter = [](const test::ServerRequest& request, test::ServerAnswer& answer) {
    const std::size_t at = request.path.find("/old/");
    if (at == std::string::npos) return;
    answer.status = 307;
    answer.headers = {{"Location", std::string(request.path).replace(at, 5, "/org/tiny/")}};
  };
  EXPECT_FALSE(resolve(Need::kConfigOnly, "old").config.empty());
}

TEST_F(HubTest, AListingWithoutHashesIsCompletedByHead) {
  const std::string listing = R"({"sha": ")" + model().commit + R"(", "siblings": [
      {"rfilename": "config.json"}, {"rfilename": "model.safetensors"}]})";
  server_.alter = [&](const test::ServerRequest& request, test::ServerAnswer& answer) {
    if (request.path.starts_with("/api/")) answer.body = listing;
  };
  const Snapshot snapshot = download();
  EXPECT_EQ(read_file(snapshot.folder / "model.safetensors", kGiB), weights());
  EXPECT_TRUE(fs::exists(cache("blobs/" + test::sha256_of(weights()))));
}

TEST_F(HubTest, AFileWhoseSizeOnlyTheAnswerTellsIsChecked) {
  const std::string content = model().files["config.json"].content;
  const std::string listing =
      R"({"sha": ")" + model().commit + R"(", "siblings": [{"rfilename": "config.json"}]})";
  server_.alter = [&](const test::ServerRequest& request, test::ServerAnswer& answer) {
    if (request.path.starts_with("/api/")) answer.body = listing;
    if (request.method == "HEAD") {
      answer.headers = {{"X-Linked-Etag", '"' + test::git_sha1_of(content) + '"'}};
    }
  };
  EXPECT_EQ(read_file(download().folder / "config.json", 1000), content);
}

TEST_F(HubTest, AnEmptyFileIsAFile) {
  model().files["empty.txt"] = {"", false};
  EXPECT_TRUE(fs::is_empty(download().folder / "empty.txt"));
}

TEST_F(HubTest, AnInterruptedFileGoesOnWhereItStopped) {
  fs::create_directories(cache("blobs"));
  const std::string sha = test::sha256_of(weights());
  std::ofstream(cache("blobs/" + sha + ".incomplete")) << weights().substr(0, 70'000);
  const Snapshot snapshot = download();
  EXPECT_EQ(read_file(snapshot.folder / "model.safetensors", kGiB), weights());
  for (const test::ServerRequest& request : server_.requests()) {
    if (!request.storage) continue;
    EXPECT_EQ(request.has("range") ? request.headers.at("range") : "", "bytes=70000-");
  }
}

TEST_F(HubTest, ADamagedRestIsFetchedAnew) {
  fs::create_directories(cache("blobs"));
  const std::string sha = test::sha256_of(weights());
  for (const std::string& rest :
       {std::string(70'000, 'x'), std::string(weights().size(), 'x'), weights() + "more"}) {
    fs::remove_all(cache("snapshots"));
    fs::remove(cache("blobs/" + sha));
    std::ofstream(cache("blobs/" + sha + ".incomplete")) << rest;
    EXPECT_EQ(read_file(download().folder / "model.safetensors", kGiB), weights());
  }
}

TEST_F(HubTest, AFileThatBreaksOffIsCompleted) {
  int breaks = 3;
  server_.alter = [&](const test::ServerRequest& request, test::ServerAnswer& answer) {
    if (request.storage && breaks-- > 0) answer.break_after = 30'000;
  };
  EXPECT_EQ(read_file(download().folder / "model.safetensors", kGiB), weights());
  EXPECT_EQ(server_.fetches("model.safetensors"), 4u);
}

TEST_F(HubTest, AServerThatForgetsRangesIsHeardFromTheBeginning) {
  int breaks = 1;
  server_.alter = [&](const test::ServerRequest& request, test::ServerAnswer& answer) {
    if (!request.storage) return;
    answer.ranges = false;
    if (breaks-- > 0) answer.break_after = 30'000;
  };
  EXPECT_EQ(read_file(download().folder / "model.safetensors", kGiB), weights());
}

TEST_F(HubTest, OfflineTakesWhatIsThereAndAsksNobody) {
  download();
  const std::size_t before = server_.requests().size();
  HubSettings offline = settings();
  offline.offline = true;
  const HubModel here(offline, *parse_hub_name(kTestModel), "");
  EXPECT_FALSE(here.resolve(Need::kAll).checkpoint.empty());
  const HubModel absent(offline, *parse_hub_name("org/absent"), "");
  test::expect_error(ErrorKind::kResource, HasSubstr("HF_HUB_OFFLINE is set"),
                     [&] { absent.resolve(Need::kConfigOnly); });
  test::expect_error(ErrorKind::kResource, HasSubstr("HF_HUB_OFFLINE is set"),
                     [&] { here.download({}); });
  EXPECT_EQ(server_.requests().size(), before);
}

}  // namespace
}  // namespace haul::core
