#include "core/formats/sharded_writer.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/json.h"

namespace haul::core {

ShardPlan plan_shards(const std::vector<HeaderTensor>& tensors, Bytes max_shard_size) {
  ShardPlan plan;
  plan.total_size = safetensors_size(tensors);
  Shard current;
  Bytes filled = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Bytes size = safetensors_size(tensors[i]);
    if (size > max_shard_size) {
      plan.shards.push_back({"", {i}});
      continue;
    }
    if (size > max_shard_size - filled) {
      plan.shards.push_back(std::move(current));
      current = {};
      filled = 0;
    }
    current.tensors.push_back(i);
    filled += size;
  }
  if (!current.tensors.empty() || plan.shards.empty()) plan.shards.push_back(std::move(current));

  const std::size_t count = plan.shards.size();
  for (std::size_t k = 0; k < count; ++k) {
    Shard& shard = plan.shards[k];
    shard.file = count == 1 ? "model.safetensors"
                            : fmt::format("model-{:05}-of-{:05}.safetensors", k + 1, count);
    std::stable_sort(shard.tensors.begin(), shard.tensors.end(), [&](std::size_t a, std::size_t b) {
      return bits(tensors[a].dtype) > bits(tensors[b].dtype);
    });
  }
  return plan;
}

std::string shard_index_text(const std::vector<HeaderTensor>& tensors, const ShardPlan& plan) {
  nlohmann::json map = nlohmann::json::object();  // sorted by name
  for (const Shard& shard : plan.shards) {
    for (const std::size_t i : shard.tensors) map[tensors[i].name] = shard.file;
  }
  const nlohmann::json index{{"metadata", {{"total_size", plan.total_size}}},
                             {"weight_map", std::move(map)}};
  return index.dump(2, ' ', true) + "\n";
}

void write_shards(const std::filesystem::path& folder, const std::vector<HeaderTensor>& tensors,
                  const SafetensorsMetadata& metadata, const ShardPlan& plan,
                  const std::function<void(std::size_t, SafetensorsWriter&)>& fill) {
  for (const Shard& shard : plan.shards) {
    std::vector<HeaderTensor> header;
    for (const std::size_t i : shard.tensors) header.push_back(tensors[i]);
    SafetensorsWriter writer(folder / shard.file, header, metadata);
    for (const std::size_t i : shard.tensors) fill(i, writer);
    writer.commit();
  }
  if (plan.shards.size() == 1) return;
  write_file_atomically(folder / "model.safetensors.index.json", shard_index_text(tensors, plan));
}

}  // namespace haul::core
