#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "core/describe/config_reader.h"
#include "haul/error.h"
#include "runtime/generate/head.h"
#include "runtime/generate/state.h"

namespace haul {
namespace {

std::string label_name(const core::Json& config, std::int64_t index) {
  const std::string key = std::to_string(index);
  const auto names = config.find("id2label");
  if (names != config.end() && names->is_object()) {
    const auto name = names->find(key);
    if (name != names->end() && name->is_string()) return name->get<std::string>();
  }
  return "LABEL_" + key;
}

// scores (labels) to probabilities, or to themselves where they are values.
at::Tensor probabilities(const at::Tensor& scores, const std::string& problem) {
  if (problem == "regression") return scores;
  if (problem == "multi_label_classification" || scores.numel() == 1) return scores.sigmoid();
  return scores.softmax(-1);
}

}  // namespace

Task LoadedModel::task() const {
  const std::string& architecture = state_->description.architecture;
  if (runtime::labels_texts(architecture)) return Task::kClassify;
  if (runtime::is_sentence_model(state_->folder)) return Task::kEmbed;
  if (runtime::fills_masks(architecture)) return Task::kFillMask;
  return runtime::continues_texts(architecture) ? Task::kGenerate : Task::kEmbed;
}

std::vector<Label> LoadedModel::classify(std::span<const TokenId> ids) {
  if (!runtime::labels_texts(state_->description.architecture)) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: a {} has no labels to choose from", state_->name,
                            state_->description.architecture));
  }
  const at::NoGradGuard no_gradients;
  const at::Tensor scores = forward(ids)[0];  // (labels)
  const core::ConfigReader config(state_->config, state_->name);
  const at::Tensor shares = probabilities(
      scores, config.has("problem_type") ? config.text("problem_type", "") : std::string());
  std::vector<Label> labels;
  for (std::int64_t i = 0; i < shares.numel(); ++i) {
    labels.push_back({i, label_name(state_->config, i), shares[i].item<double>()});
  }
  std::stable_sort(labels.begin(), labels.end(),
                   [](const Label& a, const Label& b) { return a.score > b.score; });
  return labels;
}

std::vector<Label> LoadedModel::classify(std::string_view text) {
  return classify(tokenizer().encode_ids(text, {true, false}));
}

std::vector<std::vector<Word>> LoadedModel::fill_mask(std::span<const TokenId> ids,
                                                      std::size_t count) {
  if (!runtime::fills_masks(state_->description.architecture)) {
    throw Error(ErrorKind::kUnsupported, fmt::format("{}: a {} does not fill masks", state_->name,
                                                     state_->description.architecture));
  }
  const auto& token = tokenizer().special_tokens().mask;
  const auto mask = token ? tokenizer().token_to_id(*token) : std::nullopt;
  if (!mask) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: the tokenizer has no mask token", state_->name));
  }
  if (std::find(ids.begin(), ids.end(), *mask) == ids.end()) {
    throw Error(ErrorKind::kUsage, "the text has no mask to fill",
                fmt::format("write {} where a word is wanted", *token));
  }
  const at::NoGradGuard no_gradients;
  const at::Tensor logits = forward(ids)[0];  // (T, V)
  const auto most = std::min(static_cast<std::int64_t>(count), logits.size(1));
  std::vector<std::vector<Word>> masks;
  for (std::size_t place = 0; place < ids.size(); ++place) {
    if (ids[place] != *mask) continue;
    const at::Tensor shares = logits[static_cast<std::int64_t>(place)].softmax(-1);  // (V)
    const auto [scores, best] = shares.topk(most);
    std::vector<Word> words;
    for (std::int64_t i = 0; i < most; ++i) {
      const auto id = static_cast<TokenId>(best[i].item<std::int64_t>());
      words.push_back({id, tokenizer().decode({{id}}), scores[i].item<double>()});
    }
    masks.push_back(std::move(words));
  }
  return masks;
}

std::vector<std::vector<Word>> LoadedModel::fill_mask(std::string_view text, std::size_t count) {
  return fill_mask(tokenizer().encode_ids(text, {true, false}), count);
}

}  // namespace haul
