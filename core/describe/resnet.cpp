#include <array>

#include <fmt/format.h>

#include "core/describe/family.h"
#include "core/describe/modules.h"
#include "haul/error.h"

namespace haul::core {
namespace {

// timm's plain ResNets: stem, four stages, pooling, classifier.
struct Variant {
  std::string_view name;
  bool bottleneck;  // three convolutions a block instead of two
  std::array<std::int64_t, 4> blocks;
};

constexpr std::array kVariants = {
    Variant{"resnet50", true, {3, 4, 6, 3}},   Variant{"resnet18", false, {2, 2, 2, 2}},
    Variant{"resnet26", true, {2, 2, 2, 2}},   Variant{"resnet34", false, {3, 4, 6, 3}},
    Variant{"resnet101", true, {3, 4, 23, 3}}, Variant{"resnet152", true, {3, 8, 36, 3}},
};
constexpr std::array<std::string_view, 6> kClasses = {"resnet50", "resnet18",  "resnet26",
                                                      "resnet34", "resnet101", "resnet152"};

ModuleSpec batch_norm(std::string_view name, std::int64_t width) {
  ModuleSpec result = module(name, "BatchNorm2d");
  add_parameter(&result, "weight", {width});
  add_parameter(&result, "bias", {width});
  add_buffer(&result, "running_mean", Dtype::kF32, {width}, true);
  add_buffer(&result, "running_var", Dtype::kF32, {width}, true);
  add_buffer(&result, "num_batches_tracked", Dtype::kI64, {}, true);
  return result;
}

ModuleSpec identity(std::string_view name) {
  return module(name, "Identity");
}

ModuleSpec relu(std::string_view name) {
  return module(name, "ReLU");
}

ModuleSpec basic_block(std::int64_t in, std::int64_t width) {
  return module("", "BasicBlock", conv2d("conv1", in, width, 3), batch_norm("bn1", width),
                identity("drop_block"), relu("act1"), identity("aa"),
                conv2d("conv2", width, width, 3), batch_norm("bn2", width), relu("act2"));
}

ModuleSpec bottleneck(std::int64_t in, std::int64_t width) {
  return module("", "Bottleneck", conv2d("conv1", in, width, 1), batch_norm("bn1", width),
                relu("act1"), conv2d("conv2", width, width, 3), batch_norm("bn2", width),
                identity("drop_block"), relu("act2"), identity("aa"),
                conv2d("conv3", width, 4 * width, 1), batch_norm("bn3", 4 * width), relu("act3"));
}

// Where the model's own settings may stand in timm's config.
std::int64_t classes(const ConfigReader& config) {
  return config.size_or_zero({"num_classes"},
                             config.section("pretrained_cfg").size_or_zero({"num_classes"}, 1000));
}

void refuse_other_settings(const ConfigReader& config, std::string_view name) {
  const bool changed = config.has("model_args") && !config.find({"model_args"})->empty();
  if (changed || config.text("global_pool", "avg") != "avg") {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("a {} whose config changes its structure (\"model_args\" or "
                            "\"global_pool\")",
                            name));
  }
}

Description describe(const ConfigReader& config, std::string_view class_name) {
  refuse_other_settings(config, class_name);
  std::size_t which = 0;
  while (kVariants[which].name != class_name) ++which;
  const Variant& variant = kVariants[which];
  ModuleSpec root = module("", "ResNet", conv2d("conv1", 3, 64, 7), batch_norm("bn1", 64),
                           relu("act1"), module("maxpool", "MaxPool2d"));
  std::int64_t in = 64;
  for (std::size_t i = 0; i < variant.blocks.size(); ++i) {
    const std::int64_t width = std::int64_t{64} << i;
    const std::int64_t out = variant.bottleneck ? 4 * width : width;
    ModuleSpec stage = module(fmt::format("layer{}", i + 1), "Sequential");
    for (std::int64_t k = 0; k < variant.blocks[i]; ++k) {
      ModuleSpec block = variant.bottleneck ? bottleneck(in, width) : basic_block(in, width);
      block.name = std::to_string(k);
      if (in != out) {
        block.children.push_back(
            module("downsample", "Sequential", conv2d("0", in, out, 1), batch_norm("1", out)));
      }
      in = out;
      stage.children.push_back(std::move(block));
    }
    root.children.push_back(std::move(stage));
  }
  root.children.push_back(module("global_pool", "SelectAdaptivePool2d",
                                 module("pool", "AdaptiveAvgPool2d"),
                                 module("flatten", "Flatten")));
  const std::int64_t count = classes(config);
  root.children.push_back(count == 0 ? identity("fc") : linear("fc", in, count));
  Description result;
  result.root = std::move(root);
  return result;
}

}  // namespace

extern const Family kResNet = {"", kClasses, "", describe};

}  // namespace haul::core
