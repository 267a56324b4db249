#include "core/describe/rotary.h"

#include "core/describe/modules.h"

namespace haul::core {
namespace {

std::int64_t frequencies(const ConfigReader& config, std::int64_t head_size) {
  const bool old_style = config.has("rope_scaling") && !config.find({"rope_scaling"})->empty();
  const ConfigReader rope = config.section(old_style ? "rope_scaling" : "rope_parameters");
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return (head_size + 1) / 2;
  if (type == "proportional") return head_size / 2;
  const double share =
      rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0));
  if (!(share > 0.0 && share <= 1.0)) config.fail("partial_rotary_factor", "is not in (0, 1]");
  return (static_cast<std::int64_t>(static_cast<double>(head_size) * share) + 1) / 2;
}

}  // namespace

ModuleSpec rotary_embedding(const ConfigReader& config, std::string_view class_name,
                            std::int64_t head_size) {
  ModuleSpec result = module("rotary_emb", class_name);
  const std::int64_t count = frequencies(config, head_size);
  add_buffer(&result, "inv_freq", Dtype::kF32, {count}, false);
  add_buffer(&result, "original_inv_freq", Dtype::kF32, {count}, false);
  return result;
}

}  // namespace haul::core
