#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/utils.h>

#include "haul/torch/dispatch.h"
#include "tests/support/temporary_folder.h"

namespace haul {
namespace {

// Two layers with a weight that both use, as a compiled script.
torch::jit::Module script() {
  torch::jit::Module layer("Layer");
  layer.register_parameter("weight", at::randn({6, 6}), false);
  layer.register_parameter("bias", at::randn({6}), false);
  layer.register_buffer("scale", at::randn({6}));
  layer.define(
      "def forward(self, x):\n"
      "    return torch.relu(torch.addmm(self.bias, x, self.weight.t())) * self.scale\n");
  torch::jit::Module model("Model");
  model.register_module("layer", layer);
  model.register_parameter("table", at::randn({10, 6}), false);
  model.define(
      "def forward(self, ids):\n"
      "    x = torch.embedding(self.table, ids)\n"
      "    for i in range(3):\n"
      "        x = self.layer.forward(x)\n"
      "    return {'logits': torch.mm(x, self.table.t()), 'last': x}\n");
  return model;
}

TEST(ScriptDispatch, AScriptGivesTheSameBitsFromDisk) {
  torch::manual_seed(8);
  torch::jit::Module model = script();
  const at::Tensor ids = at::arange(4);
  const auto call = [&] { return model.forward({ids}).toGenericDict(); };
  const at::Tensor logits = call().at("logits").toTensor().clone();
  const at::Tensor last = call().at("last").toTensor().clone();
  const test::TemporaryFolder folder;
  for (const DeviceMap& map :
       {DeviceMap{{"", kDiskDevice}}, DeviceMap{{"table", kCpuDevice}, {"layer", kDiskDevice}}}) {
    DispatchOptions options;
    options.offload_folder = folder.path();
    auto handle = dispatch_model(model, map, options);
    for (int pass = 0; pass < 4; ++pass) {  // the executor optimises after the first ones
      const auto found = call();
      EXPECT_TRUE(found.at("logits").toTensor().equal(logits));
      EXPECT_TRUE(found.at("last").toTensor().equal(last));
    }
    EXPECT_TRUE(handle(c10::IValue(ids)).toGenericDict().at("logits").toTensor().equal(logits));
    EXPECT_EQ(device_map(model), map);
    EXPECT_GT(dispatch_report(model).leases, 0U);
    const test::TemporaryFolder saved;
    save_model(model, saved.path());
    undispatch(model);
    load_checkpoint_in_model(model, saved.path(), DeviceMap{{"", kCpuDevice}});
    EXPECT_TRUE(call().at("logits").toTensor().equal(logits)) << "saved and loaded";
  }
}

}  // namespace
}  // namespace haul
