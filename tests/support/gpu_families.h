#pragma once

// Each family's small model on GPUs, with its weights wherever a test wants them.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "core/describe/describe.h"
#include "core/place/words.h"
#include "haul/torch/model.h"
#include "tests/support/small_models.h"
#include "tests/support/temporary_folder.h"

namespace haul::test {

inline constexpr std::int64_t kFamilyContext = 96;

inline void plan_by(const Profile& profile, const std::filesystem::path& path) {
  std::ofstream(path) << write_profile(profile);
  ::setenv("HAUL_PROFILE", path.c_str(), 1);
}

// A machine on which nobody would let the CPU compute, but for the rows that it helps with.
inline void write_gpu_profile(const std::filesystem::path& path, double help) {
  Profile profile;
  profile.ram_bandwidth = 1e6;
  profile.help_bandwidth = help;
  plan_by(profile, path);
}

// One whose CPU computes what does not fit on the GPU sooner than a link would bring it.
inline void write_cpu_profile(const std::filesystem::path& path) {
  Profile profile;
  profile.measured = true;
  profile.ram_bandwidth = 3e11;
  profile.cpu_operations = 1e15;
  profile.help_bandwidth = 0;
  profile.hop = 1e-9;
  plan_by(profile, path);
}

inline const PlanDevice& gpu_of(const Plan& plan, int index = 0) {
  for (const PlanDevice& device : plan.devices) {
    if (device.device == gpu(index)) return device;
  }
  throw std::runtime_error("a plan without that GPU");
}

// A GPU's budget of which this part of the weights is missing, and what recorded passes take: where
// not all lies there, none are.
inline Bytes budget_without(const Plan& resident, double missing) {
  const PlanDevice& device = gpu_of(resident);
  return device.used() - device.context + Profile{}.gpu.context -
         static_cast<Bytes>(missing * static_cast<double>(device.weights));
}

struct Family {
  std::string name;
  std::string config;
};

inline std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// Those of these names, or all: as they are, and with heads of 64, which fill what their kernel is
// made for.
inline std::vector<Family> families(const std::vector<std::string_view>& names = {}) {
  std::vector<Family> result;
  std::size_t found = 0;
  for (const SmallModel& small : kSmallModels) {
    if (!names.empty() && std::find(names.begin(), names.end(), small.name) == names.end()) {
      continue;
    }
    ++found;
    std::string wide = replaced(small.config, "192", "256");
    wide = replaced(wide, "\"head_dim\": 32", "\"head_dim\": 64");
    wide = replaced(wide, "\"d_kv\": 48", "\"d_kv\": 64");
    result.push_back({small.name, small.config});
    result.push_back({std::string(small.name) + "64", wide});
  }
  if (!names.empty() && found != names.size()) throw std::invalid_argument("no such family");
  return result;
}

// Those that forget tokens, if they would remember all.
inline std::vector<Family> families_without_windows() {
  std::vector<Family> result = families({"mistral", "qwen2"});
  for (Family& family : result) {
    family.name += "_whole";
    family.config = replaced(family.config, "\"sliding_window\": 20", "\"sliding_window\": null");
    family.config =
        replaced(family.config, "\"use_sliding_window\": true", "\"use_sliding_window\": false");
  }
  return result;
}

// Those with linear layers, whose matrices are large enough for the CPU to help with them.
inline std::vector<Family> large_families(const std::vector<std::string_view>& names) {
  std::vector<Family> result = families(names);
  std::erase_if(result, [](const Family& family) { return family.name.ends_with("64"); });
  for (Family& family : result) {
    family.config = replaced(family.config, "192", "1024");
    family.config = replaced(family.config, "512", "2816");
  }
  return result;
}

inline std::vector<Family> large_decoders() {
  return large_families({"llama", "mistral", "qwen2", "qwen3", "bloom"});
}

struct Answers {
  at::Tensor logits;  // of two sequences
  std::vector<at::Tensor>
      few_rows;              // logits of one to four tokens, which have kernels of their own
  std::vector<TokenId> ids;  // greedy; none of a model that does not generate
  GenerateFigures figures;
  DispatchReport report;
  Plan plan;
};

inline double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

class GpuFamily : public testing::TestWithParam<std::tuple<Family, Dtype>> {
 protected:
  GpuFamily() {
    write_model(folder.path(), family().config);
    write_gpu_profile(folder.path() / "profile.json", 1);
  }

  static const Family& family() { return std::get<0>(GetParam()); }
  static Dtype dtype() { return std::get<1>(GetParam()); }
  // Of logits, in parts of the largest: what an order of summation makes.
  static double bound() { return dtype() == Dtype::kF32 ? 1e-4 : 0.04; }
  // Whose logits over all tokens are those of one after another.
  static bool decodes() {
    return !family().name.starts_with("t5") && !family().name.starts_with("bert");
  }

  ModelOptions options(const std::string& memory) const {
    ModelOptions result;
    result.log = [](const std::string&) {};
    result.context = kFamilyContext;
    result.dtype = dtype();
    result.offload_folder = folder.path() / "offload";
    result.max_memory = parse_max_memory(memory);
    return result;
  }

  Answers answers(const ModelOptions& options) const {
    torch::manual_seed(5);
    const at::Tensor ids = at::randint(3, 2900, {2, 12}, at::kLong);
    LoadedModel model = load_model(folder.path().string(), options);
    Answers result;
    result.logits = model.forward(ids);
    for (std::int64_t tokens = 1; tokens <= 4; ++tokens) {
      result.few_rows.push_back(model.forward(ids.narrow(0, 0, 1).narrow(1, 0, tokens)));
    }
    if (model.task() == Task::kGenerate) {
      GenerateOptions generate;
      generate.temperature = 0;
      generate.max_new_tokens = 24;
      result.ids = model.generate(prompt(), generate).ids;
      result.figures = model.figures();
    }
    result.report = model.report();
    result.plan = model.plan();
    return result;
  }

  // How far tokens are from the likeliest ones by this model's logits over all of them at once, in
  // parts of the largest.
  double distance(const std::vector<TokenId>& ids, const ModelOptions& options,
                  const std::vector<TokenId>& asked = prompt()) const {
    std::vector<std::int64_t> all;
    for (const TokenId id : asked) all.push_back(static_cast<std::int64_t>(id));
    const auto before = static_cast<std::int64_t>(all.size());
    for (const TokenId id : ids) all.push_back(static_cast<std::int64_t>(id));
    LoadedModel model = load_model(folder.path().string(), options);
    const at::Tensor logits = model.forward(at::tensor(all, at::kLong).view({1, -1})).squeeze(0);
    double most = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const at::Tensor row = logits[before - 1 + static_cast<std::int64_t>(i)];
      const at::Tensor less = row.max() - row[static_cast<std::int64_t>(ids[i])];
      most = std::max(most, less.item<double>() / largest(logits));
    }
    return most;
  }

  // The plan for so much memory, of which nothing is loaded.
  Plan planned(const std::string& memory) const {
    const core::Json config = core::parse_json(family().config, "config.json");
    const Description description = core::describe_config(config, "config.json");
    PlanRequest request;
    request.memory = parse_max_memory(memory);
    request.context = kFamilyContext;
    request.dtype = dtype();
    request.options.sizes.dtype_bits = dtype() == Dtype::kF32 ? 32 : 16;
    request.options.no_split = description.no_split;
    return make_plan(description, request, load_profile());
  }

  static bool is_on(Device device, const Plan& plan) {
    return std::any_of(plan.map.begin(), plan.map.end(),
                       [&](const auto& entry) { return entry.second == device; });
  }

  static void expect_same(const Answers& found, const Answers& expected) {
    EXPECT_TRUE(found.logits.equal(expected.logits));
    for (std::size_t i = 0; i < expected.few_rows.size(); ++i) {
      EXPECT_TRUE(found.few_rows[i].equal(expected.few_rows[i])) << i + 1 << " tokens";
    }
    EXPECT_EQ(found.ids, expected.ids);
  }

  // Where the order of summation is another one; `memory`: of the plan by which the others came.
  void expect_about(const Answers& found, const Answers& expected,
                    const std::string& memory) const {
    EXPECT_LE(largest(found.logits - expected.logits), bound() * largest(expected.logits));
    for (std::size_t i = 0; i < expected.few_rows.size(); ++i) {
      const double most = bound() * largest(expected.few_rows[i]);
      EXPECT_LE(largest(found.few_rows[i] - expected.few_rows[i]), most) << i + 1 << " tokens";
    }
    EXPECT_EQ(found.ids.size(), expected.ids.size());
    if (decodes()) {
      EXPECT_LE(distance(found.ids, options(memory)), 2 * bound());
    } else if (dtype() == Dtype::kF32) {
      EXPECT_EQ(found.ids, expected.ids);
    }
  }

  // What GPUs took is what was planned; activations, which are set aside as a whole, would hide
  // what is missing.
  static void expect_planned_peaks(const Answers& answers) {
    for (const PlanDevice& device : answers.plan.devices) {
      if (!device.device.is_accelerator()) continue;
      const std::string name = core::device_words(device.device);
      bool found = false;
      for (const TierUse& tier : answers.report.tiers) {
        if (tier.tier != name) continue;
        found = true;
        EXPECT_LE(tier.peak, tier.planned) << name;
        EXPECT_GE(static_cast<double>(tier.peak - device.activations),
                  0.98 * static_cast<double>(tier.planned - device.activations))
            << name;
      }
      EXPECT_TRUE(found) << name;
    }
  }

  static std::vector<TokenId> prompt() { return std::vector<TokenId>(8, 7); }

  TemporaryFolder folder{std::filesystem::current_path()};
};

inline std::string family_name(const testing::TestParamInfo<std::tuple<Family, Dtype>>& info) {
  return std::get<0>(info.param).name + "_" + std::string(name(std::get<1>(info.param)));
}

inline auto in_both_dtypes(const std::vector<Family>& some) {
  return testing::Combine(testing::ValuesIn(some), testing::Values(Dtype::kF32, Dtype::kBF16));
}

}  // namespace haul::test
