#include "core/place/node_map.h"

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
