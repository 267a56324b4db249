#pragma once

// A module, plain and dispatched over a device map, must give the same bits: outputs and gradients.

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "tests/support/temporary_folder.h"

namespace haul::test {

using Outputs = std::vector<at::Tensor>;

struct Run {
  Outputs outputs;
  Outputs gradients;  // of the parameters, by name
};

// Calls the model, and goes back through it from the sum of its float outputs.
template <typename Model, typename Call>
Run run(Model& model, const Call& call, bool backward) {
  for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
  Run result;
  result.outputs = call(model);
  if (!backward) return result;
  at::Tensor sum;
  for (const at::Tensor& output : result.outputs) {
    if (output.requires_grad()) sum = sum.defined() ? sum + output.sum() : output.sum();
  }
  sum.backward();
  for (const auto& item : model->named_parameters())
    result.gradients.push_back(item.value().grad());
  return result;
}

inline void expect_equal(const Outputs& found, const Outputs& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << what << " " << i;
    if (!found[i].defined()) continue;
    EXPECT_TRUE(found[i].cpu().equal(expected[i].cpu())) << what << " " << i << " differs";
  }
}

// A way to place a model: the map for its tensors' names.
struct World {
  std::string name;
  std::function<DeviceMap(const std::vector<std::string>&)> map;
};

inline World everything(const std::string& name, Device device) {
  return {name, [device](const auto&) { return DeviceMap{{"", device}}; }};
}
// One tensor after the other on the next device.
inline World in_turn(const std::string& name, const std::vector<Device>& devices) {
  return {name, [devices](const std::vector<std::string>& names) {
            DeviceMap map;
            for (std::size_t i = 0; i < names.size(); ++i) {
              map.emplace_back(names[i], devices[i % devices.size()]);
            }
            return map;
          }};
}

template <typename Model>
std::vector<std::string> tensor_names(Model& model) {
  std::vector<std::string> names;
  for (const auto& item : model->named_parameters()) names.push_back(item.key());
  for (const auto& item : model->named_buffers()) names.push_back(item.key());
  return names;
}

struct SameOptions {
  at::Device device = at::kCPU;
  bool backward = true;
};

// `make` builds the module; `call` gives its outputs.
template <typename Make, typename Call>
void expect_same(const std::string& name, const std::vector<World>& worlds, const Make& make,
                 const Call& call, const SameOptions& options = {}) {
  SCOPED_TRACE(name);
  torch::manual_seed(1);
  auto plain = make();
  const TemporaryFolder checkpoint;
  save_model(plain, checkpoint.path());
  plain->to(options.device);
  const Run expected = run(plain, call, options.backward);
  const Run again = run(plain, call, options.backward);
  expect_equal(again.outputs, expected.outputs, "the plain module itself, twice: output");
  for (const World& world : worlds) {
    SCOPED_TRACE(world.name);
    auto loaded = [&] {
      const EmptyWeights scope;
      return make();
    }();
    LoadOptions load;
    load.main_device = options.device;
    load.max_memory = parse_max_memory("0=20GiB,cpu=8GiB");
    load_checkpoint_in_model(loaded, checkpoint.path(), world.map(tensor_names(loaded)), load);
    for (int pass = 0; pass < 2; ++pass) {
      const Run found = run(loaded, call, options.backward);
      expect_equal(found.outputs, expected.outputs, "loaded: output");
      expect_equal(found.gradients, expected.gradients, "loaded: gradient");
    }
    auto moved = make();
    {
      const at::NoGradGuard no_gradients;
      const auto values = plain->named_parameters();
      for (auto& item : moved->named_parameters()) item.value().copy_(values[item.key()]);
      const auto buffers = plain->named_buffers();
      for (auto& item : moved->named_buffers()) item.value().copy_(buffers[item.key()]);
    }
    const TemporaryFolder offload;
    DispatchOptions dispatch;
    dispatch.main_device = options.device;
    dispatch.offload_folder = offload.path();
    dispatch.max_memory = load.max_memory;
    place_model(moved, world.map(tensor_names(moved)), dispatch);
    const Run found = run(moved, call, options.backward);
    expect_equal(found.outputs, expected.outputs, "dispatched: output");
    expect_equal(found.gradients, expected.gradients, "dispatched: gradient");
    undispatch(moved, options.device);
    const Run after = run(moved, call, options.backward);
    expect_equal(after.outputs, expected.outputs, "undispatched: output");
  }
}

void expect_same_stock_modules(const std::vector<World>& worlds, const SameOptions& options);

}  // namespace haul::test
