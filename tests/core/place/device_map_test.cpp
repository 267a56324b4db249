#include "haul/device_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/trees.h"

namespace haul {
namespace {

using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;

DeviceMap clean(const DeviceMap& map) {
  return clean_device_map(map);
}

TEST(CleanDeviceMap, PutsModulesOnOneDeviceTogether) {
  EXPECT_EQ(clean({{"a.x", gpu(0)},
                   {"a.y", gpu(0)},
                   {"b.x.0", gpu(1)},
                   {"b.x.1", gpu(1)},
                   {"b.y.0", gpu(2)},
                   {"b.y.1", gpu(2)},
                   {"c", gpu(2)}}),
            (DeviceMap{{"a", gpu(0)}, {"b.x", gpu(1)}, {"b.y", gpu(2)}, {"c", gpu(2)}}));
  EXPECT_EQ(clean({{"a", gpu(0)}, {"b", gpu(0)}, {"c", gpu(0)}}), (DeviceMap{{"", gpu(0)}}));
}

TEST(CleanDeviceMap, LeavesASingleEntryAsItIs) {
  EXPECT_EQ(clean({{"a.x", gpu(0)}}), (DeviceMap{{"a.x", gpu(0)}}));
  EXPECT_EQ(clean({{"", kCpuDevice}}), (DeviceMap{{"", kCpuDevice}}));
  EXPECT_EQ(clean({{"a.x", gpu(0)}, {"b", kCpuDevice}}),
            (DeviceMap{{"a.x", gpu(0)}, {"b", kCpuDevice}}));
}

TEST(CheckDeviceMap, AcceptsAMapThatCoversEverything) {
  const auto check = check_device_map(test::tree_m(), {{"", gpu(0)}});
  EXPECT_TRUE(check.covers_everything());
  EXPECT_TRUE(check.unknown_keys.empty());
}

TEST(CheckDeviceMap, NamesWhatIsNotCovered) {
  const auto check = check_device_map(test::tree_m(), {{"linear1", gpu(0)}, {"linear2", gpu(1)}});
  EXPECT_THAT(check.uncovered,
              ElementsAre("batchnorm.weight", "batchnorm.bias", "batchnorm.running_mean",
                          "batchnorm.running_var", "batchnorm.num_batches_tracked"));
}

TEST(CheckDeviceMap, NamesEntriesOfAnotherModel) {
  const auto check = check_device_map(test::tree_m(), {{"linear1", gpu(0)},
                                                       {"batchnorm", gpu(0)},
                                                       {"linear2", gpu(1)},
                                                       {"bogus", gpu(1)},
                                                       {"linear", gpu(1)}});
  EXPECT_TRUE(check.covers_everything());
  EXPECT_THAT(check.unknown_keys, ElementsAre("bogus", "linear"));
}

TEST(CheckDeviceMap, FindsTiesOverSeveralDevices) {
  const auto check = check_device_map(
      test::tree_g(true), {{"wte", gpu(0)}, {"h", gpu(0)}, {"ln", gpu(0)}, {"lm_head", gpu(1)}});
  EXPECT_THAT(check.split_ties, ElementsAre(ElementsAre("lm_head.weight", "wte.weight")));
}

TEST(FindTiedParameters, ListsGroupsInTheOrderOfTheModel) {
  Description description = test::describe(
      test::container("", "Sequential", {test::linear("0", 4, 4), test::linear("1", 4, 4)}));
  description.tied = {{"0.bias", "1.bias"}, {"1.weight", "0.weight"}, {"alone"}};
  EXPECT_THAT(find_tied_parameters(description),
              ElementsAre(ElementsAre("0.weight", "1.weight"), ElementsAre("0.bias", "1.bias")));
}

TEST(MaxMemory, ReadsListsAndJson) {
  const MaxMemory expected{budget(gpu(0), 10 * kGiB), budget(kCpuDevice, 1'500'000'000)};
  EXPECT_EQ(parse_max_memory("cpu=1.5GB, 0=10GiB"), expected);
  EXPECT_EQ(parse_max_memory(R"({"0": "10GiB", "cpu": 1500000000})"), expected);
  EXPECT_TRUE(parse_max_memory("").empty());
  EXPECT_TRUE(parse_max_memory("{}").empty());
}

TEST(MaxMemory, OrdersDevicesAsTheyAreFilled) {
  const MaxMemory memory = parse_max_memory("disk=5,cpu=4,mps=3,7=2,1=1");
  std::string order;
  for (const Budget& item : memory) order += to_string(item.device) + " ";
  EXPECT_EQ(order, "1 7 mps cpu disk ");
}

TEST(MaxMemory, RefusesWhatMakesNoSense) {
  expect_error(ErrorKind::kUsage, HasSubstr("'tpu' is not a device"),
               [] { parse_max_memory("tpu=10"); });
  expect_error(ErrorKind::kUsage, HasSubstr("'-1GB' is not a size"),
               [] { parse_max_memory("0=-1GB"); });
  expect_error(ErrorKind::kUsage, HasSubstr("5k0MB"), [] { parse_max_memory("0=5k0MB"); });
  expect_error(ErrorKind::kUsage, HasSubstr("5MBB"), [] { parse_max_memory("0=5MBB"); });
  expect_error(ErrorKind::kUsage, HasSubstr("10XB"), [] { parse_max_memory("0=10XB"); });
  expect_error(ErrorKind::kUsage, HasSubstr("too large"),
               [] { parse_max_memory("0=99999999999GiB"); });
  expect_error(ErrorKind::kUsage, HasSubstr("too large"), [] { parse_max_memory("0=2000000TB"); });
  expect_error(ErrorKind::kUsage, HasSubstr("no '='"), [] { parse_max_memory("10GiB"); });
  expect_error(ErrorKind::kUsage, HasSubstr("given twice"), [] { parse_max_memory("0=1,0=2"); });
  expect_error(ErrorKind::kUsage, HasSubstr("-5"), [] { parse_max_memory(R"({"0": -5})"); });
  expect_error(ErrorKind::kUsage, HasSubstr("'-1' is not a device"),
               [] { parse_max_memory("-1=5"); });
}

TEST(DeviceMapFile, ReadsNumbersAndNames) {
  EXPECT_EQ(read_device_map(R"({"b": "cpu", "a": 1, "c": "cuda:2"})", "map"),
            (DeviceMap{{"a", gpu(1)}, {"b", kCpuDevice}, {"c", gpu(2)}}));
}

TEST(DeviceMapFile, RefusesWhatIsNoMap) {
  expect_error(ErrorKind::kCorrupt, HasSubstr("JSON object"), [] { read_device_map("[]", "map"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("map: entry 'a': 'tpu' is not a device"),
               [] { read_device_map(R"({"a": "tpu"})", "map"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("entry 'a'"),
               [] { read_device_map(R"({"a": -1})", "map"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("entry 'a'"),
               [] { read_device_map(R"({"a": null})", "map"); });
}

TEST(MapMode, KnowsFourNames) {
  EXPECT_EQ(parse_map_mode("balanced_low_0"), MapMode::kBalancedLow0);
  expect_error(ErrorKind::kUsage, HasSubstr("'fast'"), [] { parse_map_mode("fast"); });
}

}  // namespace
}  // namespace haul
