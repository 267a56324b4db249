#include "core/describe/cut.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/describe/family.h"
#include "haul/error.h"

namespace haul::core {
namespace {

const CutRule* rule_for(std::span<const CutRule> rules, std::string_view name) {
  for (const CutRule& rule : rules) {
    if (!name.ends_with(rule.module)) continue;
    const std::size_t before = name.size() - rule.module.size();
    if (before == 0 || name[before - 1] == '.') return &rule;
  }
  return nullptr;
}

// Several processes that could share it, for a hint.
std::string possible_counts(const Dimensions& d) {
  const std::int64_t most = std::gcd(std::gcd(d.heads, d.kv_heads), d.intermediate);
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 2; count <= most; ++count) {
    if (most % count == 0) counts.push_back(count);
  }
  if (counts.empty()) return "no number of processes can; a pipeline cuts between layers";
  return fmt::format("this model can be shared by {}", fmt::join(counts, ", "));
}

void check(const Description& description, std::int64_t count) {
  const Dimensions& d = *description.dimensions;
  if (count >= 1 && d.heads % count == 0 && d.kv_heads % count == 0 &&
      d.intermediate % count == 0) {
    return;
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("{} processes cannot share the {} heads, {} kv heads and the inner width "
                          "of {} of a {}: it must divide each of them",
                          count, d.heads, d.kv_heads, d.intermediate, description.architecture),
              possible_counts(d));
}

class Cutter {
 public:
  Cutter(std::span<const CutRule> rules, std::int64_t count, CutModel* model)
      : rules_(rules), count_(count), model_(model) {}

  void cut(ModuleSpec* module, const std::string& name) {
    if (const CutRule* const rule = rule_for(rules_, name)) cut_layer(*rule, module, name);
    for (ModuleSpec& child : module->children) {
      cut(&child, name.empty() ? child.name : name + "." + child.name);
    }
  }

 private:
  void cut_layer(const CutRule& rule, ModuleSpec* module, const std::string& name) {
    const bool outputs = rule.side == CutSide::kOutputs;
    const bool turned = module->class_name == "Conv1D";  // its weight is (in, out)
    for (ParameterSpec& parameter : module->parameters) {
      const bool is_bias = parameter.shape.size() == 1;
      if (is_bias && !outputs) continue;
      const TensorCut cut{!is_bias && outputs == turned ? 1U : 0U, rule.groups};
      parameter.shape.at(cut.dim) /= count_;
      model_->cuts.emplace(name + "." + parameter.name, cut);
    }
    if (!outputs) model_->summed.push_back(name);
  }

  std::span<const CutRule> rules_;
  std::int64_t count_;
  CutModel* model_;
};

}  // namespace

CutModel cut_model(const Description& description, std::int64_t count) {
  const Family* const family = find_family(description.architecture, "");
  if (family == nullptr || family->cuts.empty() || !description.dimensions) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("a {} cannot be shared layer by layer", description.architecture),
                "GPT-2, BERT, Llama, Mistral, Qwen2, Qwen3 and BLOOM can");
  }
  check(description, count);
  CutModel model{description, {}, {}};
  Cutter(family->cuts, count, &model).cut(&model.description.root, "");
  Dimensions& d = *model.description.dimensions;
  d.heads /= count;
  d.kv_heads /= count;
  d.intermediate /= count;
  return model;
}

std::uint64_t runs_of(const Shape& whole, const TensorCut& cut) {
  auto runs = static_cast<std::uint64_t>(cut.groups);
  for (std::size_t i = 0; i < cut.dim; ++i) runs *= static_cast<std::uint64_t>(whole[i]);
  return runs;
}

PartSink::PartSink(Bytes run, TensorPart part, Sink sink)
    : run_(run),
      begin_(run / static_cast<Bytes>(part.count) * static_cast<Bytes>(part.index)),
      end_(begin_ + run / static_cast<Bytes>(part.count)),
      sink_(std::move(sink)) {}

void PartSink::operator()(std::span<const std::byte> piece) {
  while (!piece.empty()) {
    const bool mine = at_ >= begin_ && at_ < end_;
    const Bytes stop = at_ < begin_ ? begin_ : mine ? end_ : run_;
    const Bytes count = std::min<Bytes>(piece.size(), stop - at_);
    if (mine) sink_(piece.first(count));
    piece = piece.subspan(count);
    at_ = at_ + count == run_ ? 0 : at_ + count;
  }
}

}  // namespace haul::core
