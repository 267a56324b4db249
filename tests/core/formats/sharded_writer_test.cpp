#include "core/formats/sharded_writer.h"

#include <cstring>

#include <gtest/gtest.h>

#include "core/formats/checkpoint.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HeaderTensor bytes_tensor(std::string name, std::int64_t size) {
  return {std::move(name), Dtype::kU8, {size}};
}

std::vector<std::vector<std::size_t>> groups(const ShardPlan& plan) {
  std::vector<std::vector<std::size_t>> result;
  for (const Shard& shard : plan.shards) result.push_back(shard.tensors);
  return result;
}

TEST(ShardPlan, IsOneFileWhenAllFits) {
  const auto plan = plan_shards({bytes_tensor("a", 3), bytes_tensor("b", 7)}, 10);
  EXPECT_THAT(groups(plan), ElementsAre(ElementsAre(0, 1)));
  EXPECT_EQ(plan.shards[0].file, "model.safetensors");
  EXPECT_EQ(plan.total_size, 10U);
  EXPECT_EQ(plan_shards({}, 10).shards.at(0).file, "model.safetensors");
}

TEST(ShardPlan, StartsAShardWhenTheNextTensorDoesNotFit) {
  const auto plan = plan_shards(
      {bytes_tensor("a", 6), bytes_tensor("b", 5), bytes_tensor("c", 5), bytes_tensor("d", 1)}, 10);
  EXPECT_THAT(groups(plan), ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_EQ(plan.shards[2].file, "model-00003-of-00003.safetensors");
}

TEST(ShardPlan, GivesALargeTensorItsOwnShardBeforeTheOpenOne) {
  const auto plan =
      plan_shards({bytes_tensor("a", 2), bytes_tensor("huge", 11), bytes_tensor("b", 2)}, 10);
  EXPECT_THAT(groups(plan), ElementsAre(ElementsAre(1), ElementsAre(0, 2)));
}

TEST(ShardPlan, PutsWideElementsFirstSoThatAllAreAligned) {
  const std::vector<HeaderTensor> tensors{{"u8", Dtype::kU8, {3}},
                                          {"f4", Dtype::kF4, {2}},
                                          {"f32", Dtype::kF32, {1}},
                                          {"bf16", Dtype::kBF16, {3}},
                                          {"i64", Dtype::kI64, {1}}};
  EXPECT_THAT(groups(plan_shards(tensors, 1000)), ElementsAre(ElementsAre(4, 2, 3, 0, 1)));
}

TEST(ShardIndexText, IsSortedAndInAscii) {
  const std::vector<HeaderTensor> tensors{bytes_tensor("z", 5), bytes_tensor("ä", 6)};
  EXPECT_EQ(shard_index_text(tensors, plan_shards(tensors, 10)),
            "{\n  \"metadata\": {\n    \"total_size\": 11\n  },\n  \"weight_map\": {\n"
            "    \"z\": \"model-00001-of-00002.safetensors\",\n"
            "    \"\\u00e4\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
}

TEST(WriteShards, WritesACheckpointThatOpens) {
  const test::TemporaryFolder folder;
  const std::vector<HeaderTensor> tensors{
      {"a", Dtype::kU8, {2}}, {"b", Dtype::kI16, {}}, {"none", Dtype::kF32, {0, 3}}};
  const std::string data = "abcd";
  const auto all = std::as_bytes(std::span(data.data(), data.size()));
  write_shards(folder.path(), tensors, {{"format", "pt"}}, plan_shards(tensors, 2),
               [&](std::size_t i, SafetensorsWriter& writer) {
                 if (i < 2) writer.write(all.subspan(2 * i, 2));
               });
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint.files().size(), 2U);
  EXPECT_EQ(checkpoint.bytes(*checkpoint.find("b"))[1], std::byte{'d'});
  EXPECT_THAT(checkpoint.find("none")->shape, ElementsAre(0, 3));
  EXPECT_EQ(checkpoint.metadata().dump(), R"({"format":"pt"})");
  EXPECT_TRUE(checkpoint.notes().empty());
}

TEST(SafetensorsPrefix, EndsAtADiskBlock) {
  for (std::size_t length = 1; length < 10; ++length) {
    const std::string prefix =
        safetensors_prefix({bytes_tensor(std::string(length, 'n'), 1)}, {{"k", "v"}});
    EXPECT_EQ(prefix.size() % 512, 0U);
    std::uint64_t size = 0;
    std::memcpy(&size, prefix.data(), sizeof size);
    EXPECT_EQ(size, prefix.size() - 8);
  }
}

TEST(SafetensorsPrefix, RefusesWhatTheFormatCannotHold) {
  const auto refused = [](const std::vector<HeaderTensor>& tensors, const char* why) {
    test::expect_error(ErrorKind::kUnsupported, HasSubstr(why),
                       [&] { safetensors_prefix(tensors, {}); });
  };
  refused({bytes_tensor("a", 1), bytes_tensor("a", 1)},
          "'a' cannot be written to safetensors: "
          "the name is given twice");
  refused({bytes_tensor("__metadata__", 1)}, "reserved");
  refused({bytes_tensor("\xff", 1)}, "UTF-8");
  refused({{"f", Dtype::kF4, {3}}}, "'f' cannot be written to safetensors: its shape");
}

TEST(SafetensorsWriter, CountsTheBytesItIsGiven) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  const std::string data = "abcd";
  const auto bytes = std::as_bytes(std::span(data.data(), data.size()));
  SafetensorsWriter writer(path, {bytes_tensor("a", 3)}, {});
  writer.write(bytes.first(2));
  test::expect_error(ErrorKind::kInternal, HasSubstr("1 bytes less"), [&] { writer.commit(); });
  test::expect_error(ErrorKind::kInternal, HasSubstr("1 bytes more"),
                     [&] { writer.write(bytes.first(2)); });
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.write(bytes.subspan(2, 1));
  writer.commit();
  EXPECT_EQ(Checkpoint::open(path).tensors().size(), 1U);
}

}  // namespace
}  // namespace haul::core
