#include "haul/module_sizes.h"

#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "haul/error.h"
#include "tests/support/expect_error.h"

namespace haul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModuleSpec linear(std::string name, std::int64_t in, std::int64_t out, bool bias = true) {
  ModuleSpec module{std::move(name), "Linear", {{"weight", Dtype::kF32, {out, in}}}, {}, {}};
  if (bias) module.parameters.push_back({"bias", Dtype::kF32, {out}});
  return module;
}

ModuleSpec batchnorm(std::string name, std::int64_t width) {
  return {std::move(name),
          "BatchNorm1d",
          {{"weight", Dtype::kF32, {width}}, {"bias", Dtype::kF32, {width}}},
          {{"running_mean", Dtype::kF32, {width}, true},
           {"running_var", Dtype::kF32, {width}, true},
           {"num_batches_tracked", Dtype::kI64, {}, true}},
          {}};
}

Description small_model() {
  Description d;
  d.root = {"",
            "M",
            {},
            {},
            {linear("linear1", 3, 4), batchnorm("batchnorm", 4), linear("linear2", 4, 5)}};
  return d;
}

double bytes_of(const ModuleSizes& sizes, std::string_view name) {
  const auto index = sizes.find(name);
  if (!index) ADD_FAILURE() << "no node " << name;
  return index ? exact_bytes(sizes[*index].bits) : -1;
}

TEST(ModuleSizes, CountsEveryModuleAndTensor) {
  const Description d = small_model();
  const ModuleSizes sizes = compute_module_sizes(d);
  EXPECT_EQ(bytes_of(sizes, ""), 236);
  EXPECT_EQ(bytes_of(sizes, "linear1"), 64);
  EXPECT_EQ(bytes_of(sizes, "linear1.weight"), 48);
  EXPECT_EQ(bytes_of(sizes, "batchnorm"), 72);
  EXPECT_EQ(bytes_of(sizes, "batchnorm.num_batches_tracked"), 8);
  EXPECT_EQ(bytes_of(sizes, "linear2.bias"), 20);
  EXPECT_FALSE(sizes.find("linear3"));
  EXPECT_FALSE(sizes.find("linear1.weight.x"));
}

TEST(ModuleSizes, NamesEveryNodeByItsFullPath) {
  const Description d = small_model();
  const ModuleSizes sizes = compute_module_sizes(d);
  for (ModuleSizes::Index i = 0; i < sizes.nodes().size(); ++i) {
    EXPECT_EQ(sizes.find(sizes.name(i)), i) << sizes.name(i);
  }
}

TEST(ModuleSizes, ConvertsFloatsButNeverIntegers) {
  const Description d = small_model();
  EXPECT_EQ(exact_bytes(compute_module_sizes(d, {.dtype_bits = 16}).total()), 122);
  EXPECT_EQ(bytes_of(compute_module_sizes(d, {.dtype_bits = 16}), "batchnorm"), 40);
}

TEST(ModuleSizes, SpecialDtypesWinOverTheDtype) {
  const Description d = small_model();
  const SizeOptions options{.dtype_bits = 16, .special_bits = {{"linear1.weight", 32}}};
  EXPECT_EQ(exact_bytes(compute_module_sizes(d, options).total()), 146);
}

TEST(ModuleSizes, KeepsTheFractionOfFourBitTypes) {
  EXPECT_EQ(exact_bytes(compute_module_sizes(small_model(), {.dtype_bits = 4}).total()), 36.5);
}

TEST(ModuleSizes, AWiderDtypeNeverMakesAModelLarger) {
  EXPECT_EQ(exact_bytes(compute_module_sizes(small_model(), {.dtype_bits = 64}).total()), 236);
}

TEST(ModuleSizes, ABoolCountsOneBit) {
  Description d;
  d.root = {"", "M", {}, {{"mask", Dtype::kBool, {12}, false}}, {}};
  EXPECT_EQ(exact_bytes(compute_module_sizes(d).total()), 1.5);
  EXPECT_EQ(whole_bytes(compute_module_sizes(d).total()), 2u);
}

TEST(ModuleSizes, CountsBuffersAlone) {
  const Description d = small_model();
  EXPECT_EQ(exact_bytes(compute_module_sizes(d, {.buffers_only = true}).total()), 40);
}

TEST(ModuleSizes, CountsATiedTensorUnderItsFirstRegisteredName) {
  Description d = small_model();
  d.root.children[2] = linear("linear2", 3, 4);
  d.tied = {{"linear2.weight", "linear1.weight"}};
  const ModuleSizes sizes = compute_module_sizes(d);
  EXPECT_EQ(bytes_of(sizes, "linear1"), 64);
  EXPECT_EQ(bytes_of(sizes, "linear2"), 16);
  EXPECT_EQ(bytes_of(sizes, "linear2.weight"), 0);
}

TEST(ModuleSizes, RefusesSizesThatDoNotFit) {
  Description d;
  d.root = {"", "M", {}, {}, {}};
  for (int i = 0; i < 4; ++i) {
    d.root.parameters.push_back({"w" + std::to_string(i), Dtype::kF64, {std::int64_t{1} << 56}});
  }
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("63 bits"),
                     [&] { compute_module_sizes(d); });
}

TEST(MaximumSizes, NamesEveryLayerOfTheLargestSize) {
  Description d;
  d.root = {"", "M", {}, {}, {linear("a", 4, 4), linear("b", 2, 2), linear("c", 4, 4)}};
  const MaximumSizes sizes = calculate_maximum_sizes(d);
  EXPECT_EQ(exact_bytes(sizes.total), 184);
  EXPECT_EQ(exact_bytes(sizes.largest_layer.bits), 80);
  EXPECT_THAT(sizes.largest_layer.names, ElementsAre("a", "c"));
}

TEST(MaximumSizes, AnUnsplittableClassIsOneLayer) {
  Description d;
  d.root = {
      "",
      "M",
      {},
      {},
      {{"block", "Block", {}, {}, {linear("a", 4, 4), linear("b", 2, 2)}}, linear("head", 4, 5)}};
  EXPECT_THAT(calculate_maximum_sizes(d).largest_layer.names, ElementsAre("head"));
  d.no_split = {"Block"};
  EXPECT_THAT(calculate_maximum_sizes(d).largest_layer.names, ElementsAre("block"));
  EXPECT_EQ(exact_bytes(calculate_maximum_sizes(d).largest_layer.bits), 104);
}

TEST(MaximumSizes, TensorsOfTheRootAreLayersAndOthersAreNot) {
  Description d;
  d.root = {"",
            "M",
            {{"scale", Dtype::kF32, {30}}},
            {{"table", Dtype::kF32, {30}, true}},
            {{"inner", "Inner", {{"big", Dtype::kF32, {100}}}, {}, {linear("a", 29, 1, false)}}}};
  const MaximumSizes sizes = calculate_maximum_sizes(d);
  EXPECT_EQ(exact_bytes(sizes.largest_layer.bits), 120);
  EXPECT_THAT(sizes.largest_layer.names, ElementsAre("scale", "table"));
}

TEST(MaximumSizes, EmptyLayersAreNamedWhenNothingIsLarger) {
  Description d;
  d.root = {"", "M", {}, {}, {{"a", "Identity", {}, {}, {}}, {"b", "Identity", {}, {}, {}}}};
  EXPECT_THAT(calculate_maximum_sizes(d).largest_layer.names, ElementsAre("a", "b"));
}

TEST(MaximumSizes, AHundredThousandModulesTakeLinearTime) {
  Description d;
  d.root = {"", "M", {}, {}, {}};
  for (int i = 0; i < 50'000; ++i) {
    const std::string name = std::to_string(i);
    d.root.children.push_back({name, "Block", {}, {}, {linear("a", 4, 4)}});
    if (i > 0) d.tied.push_back({name + ".a.weight", "0.a.bias" + name});
  }
  const std::clock_t start = std::clock();  // of this process alone, however busy the machine
  EXPECT_EQ(exact_bytes(calculate_maximum_sizes(d).total), 4'000'000);
  EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC);
}

TEST(CountedBits, KnowsTorchsNamesAndAcceleratesOwn) {
  EXPECT_EQ(counted_bits("bool"), 1);
  EXPECT_EQ(counted_bits("torch.bfloat16"), 16);
  EXPECT_EQ(counted_bits("float8_e4m3fn"), 8);
  EXPECT_EQ(counted_bits("int4"), 4);
  EXPECT_EQ(counted_bits("int2"), 2);
  EXPECT_EQ(counted_bits("fp8"), 8);
  EXPECT_FALSE(counted_bits("q4"));
}

}  // namespace
}  // namespace haul
