#include "core/place/node_map.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/trees.h"

namespace haul::core {
namespace {

// Names whose order differs when they are compared whole: "a-b" is before "a.c".
Description awkward() {
  const auto leaves = [](const std::string& name) {
    return test::container(name, "Half",
                           {test::linear("b", 2, 2), test::linear("10", 2, 2),
                            test::linear("9", 2, 2), test::linear("a", 2, 2)});
  };
  std::vector<ModuleSpec> children;
  for (const char* name :
       {"a", "a-b", "ab", "a_very_long_name_2", "a_very_long_name_1", "9", "10"}) {
    children.push_back(leaves(name));
  }
  return test::describe(test::container("", "Model", children));
}

TEST(NodeMap, IsNamedSortedAndCleanedAsTheMapOfNamesIs) {
  std::mt19937 random(1);
  const Description description = awkward();
  const ModuleSizes sizes = compute_module_sizes(description);
  for (int round = 0; round < 300; ++round) {
    NodeMap map;
    for (ModuleSizes::Index i = 1; i < sizes.nodes().size();) {
      const bool stays =
          sizes[i].module == nullptr || sizes[i].module->children.empty() || random() % 3 == 0;
      if (stays) map.push_back({i, gpu(static_cast<int>(random() % 8 == 0))});
      i = stays ? sizes[i].end : i + 1;
    }
    DeviceMap expected;
    for (const NodeEntry& entry : map) expected.emplace_back(sizes.name(entry.node), entry.device);
    expected = sorted(std::move(expected));
    ASSERT_EQ(named(sizes, map, false), expected);
    ASSERT_EQ(named(sizes, map, true), clean_device_map(expected));
  }
}

TEST(NodeMap, TellsWhereItsNamesStand) {
  const Description description = test::describe(test::container(
      "", "Model",
      {test::container("b", "Half", {test::linear("9", 2, 2), test::linear("10", 2, 2)}),
       test::container("a", "Half", {test::linear("0", 2, 2), test::linear("1", 2, 2)})}));
  const ModuleSizes sizes = compute_module_sizes(description);
  NodeMap map;
  for (const char* name : {"b.9", "b.10", "a.0", "a.1"}) {
    map.push_back({*sizes.find(name), name[0] == 'a' || name[2] == '9' ? gpu(0) : gpu(1)});
  }
  NamePlaces places;
  const DeviceMap result = named(sizes, map, true, &places);
  EXPECT_EQ(result, (DeviceMap{{"a", gpu(0)}, {"b.10", gpu(1)}, {"b.9", gpu(0)}}));
  ASSERT_EQ(places.size(), sizes.nodes().size());
  for (ModuleSizes::Index i = 0; i < places.size(); ++i) {
    const auto found = std::find_if(result.begin(), result.end(), [&](const auto& entry) {
      return entry.first == sizes.name(i);
    });
    const auto place = static_cast<std::uint32_t>(found - result.begin());
    EXPECT_EQ(places[i], found == result.end() ? kNoPlace : place) << sizes.name(i);
  }
}

TEST(NodeMap, TellsNoPlacesWhereWholeNamesAreSorted) {
  const Description description = awkward();
  const ModuleSizes sizes = compute_module_sizes(description);
  NamePlaces places{1, 2};
  named(sizes, {{*sizes.find("a-b.9"), gpu(0)}, {*sizes.find("ab"), gpu(1)}}, true, &places);
  EXPECT_TRUE(places.empty());
}

TEST(NodeMap, NamesAreThoseOfTheSizes) {
  std::mt19937 random(2);
  const Description description = awkward();
  const ModuleSizes sizes = compute_module_sizes(description);
  Names names(sizes);
  for (int i = 0; i < 500; ++i) {
    const auto node = static_cast<ModuleSizes::Index>(random() % sizes.nodes().size());
    ASSERT_EQ(names(node), sizes.name(node));
  }
}

TEST(NodeMap, FindsTheDeviceAtAboveAndBelowANode) {
  const Description description = awkward();
  const ModuleSizes sizes = compute_module_sizes(description);
  const auto node = [&](const char* name) { return *sizes.find(name); };
  const NodeMap map{{node("a"), gpu(0)}, {node("ab.b"), gpu(1)}, {node("ab.a"), kCpuDevice}};
  EXPECT_EQ(device_at(sizes, map, node("a")), gpu(0));
  EXPECT_EQ(device_at(sizes, map, node("a.9.weight")), gpu(0));
  EXPECT_EQ(device_at(sizes, map, node("ab.b.weight")), gpu(1));
  EXPECT_EQ(device_at(sizes, map, node("ab")), std::nullopt) << "two devices";
  EXPECT_EQ(device_at(sizes, map, node("ab.9")), std::nullopt);
  EXPECT_EQ(device_at(sizes, {{node("9.a.weight"), gpu(2)}}, node("9")), gpu(2));
}

}  // namespace
}  // namespace haul::core
