#include <algorithm>
#include <cmath>
#include <cstdio>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/dispatch/lack_of_memory.h"
#include "runtime/generate/input_ids.h"
#include "runtime/generate/state.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/utf8.h"

namespace haul {
namespace {

using runtime::Pooling;
using runtime::SentenceConfig;

void remark(const LoadedModel::State& state, const std::string& line) {
  if (state.log) {
    state.log(line);
  } else {
    fmt::print(stderr, "haul: {}\n", line);
  }
}

const SentenceConfig& sentence_config(LoadedModel::State& state) {
  if (!state.sentence) {
    state.sentence = runtime::read_sentence_config(state.folder);
    if (!state.sentence->assumed.empty()) remark(state, state.sentence->assumed);
  }
  return *state.sentence;
}

std::string lower_case(const std::string& text) {
  tokenizers::Text lowered;
  lowered.assign(tokenizers::to_utf8(text), 0, false);
  tokenizers::make_lowercase()->normalize(lowered);
  return lowered.bytes();
}

// hidden (T, C) to (C).
at::Tensor pool(const at::Tensor& hidden, Pooling pooling) {
  const std::int64_t tokens = hidden.size(0);
  switch (pooling) {
    case Pooling::kFirst:
      return hidden[0];
    case Pooling::kMax:
      return hidden.amax(0);
    case Pooling::kMean:
      return hidden.mean(0);
    case Pooling::kMeanSqrt:
      return hidden.sum(0) / std::sqrt(static_cast<double>(tokens));
    case Pooling::kWeightedMean: {
      const at::Tensor weights = at::arange(1, tokens + 1, hidden.options());
      return (hidden * weights.unsqueeze(1)).sum(0) / weights.sum();
    }
    case Pooling::kLast:
      return hidden[tokens - 1];
  }
  throw Error(ErrorKind::kInternal, "a pooling that nobody named");
}

// The first tokens and, as truncation does it, the special ones at the end.
void cut(Encoding* encoding, std::size_t most) {
  std::vector<TokenId>& ids = encoding->ids;
  const auto& special = encoding->special_tokens_mask;
  const auto last_text = std::find(special.rbegin(), special.rend(), 0U);
  const auto ending = static_cast<std::size_t>(last_text - special.rbegin());
  const std::size_t kept = most > ending ? most - ending : 0;
  ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(kept),
            ids.end() - static_cast<std::ptrdiff_t>(ending));
}

}  // namespace

std::vector<float> LoadedModel::embed(std::span<const TokenId> ids) {
  const SentenceConfig& config = sentence_config(*state_);
  const at::NoGradGuard no_gradients;
  const models::Inputs inputs{runtime::one_sequence(ids, *state_)};
  const at::Tensor hidden =
      runtime::telling_lack_of_memory(state_->name, state_->plan.devices, [&] {
        return state_->model->hidden(inputs.to(state_->device)).to(at::kCPU, at::kFloat)[0];
      });  // (T, C)
  std::vector<at::Tensor> parts;
  for (const Pooling pooling : config.pooling) parts.push_back(pool(hidden, pooling));
  at::Tensor result = at::cat(parts);
  if (config.normalise) result = result / result.norm().clamp_min(1e-12);
  const auto* const data = result.const_data_ptr<float>();
  return {data, data + result.numel()};
}

std::vector<float> LoadedModel::embed(std::string_view text) {
  const SentenceConfig& config = sentence_config(*state_);
  std::string whole = config.prompt + std::string(text);
  if (config.lower_case) whole = lower_case(whole);
  Encoding encoding = tokenizer().encode(whole, {true, false});
  const auto most = static_cast<std::size_t>(config.max_tokens.value_or(state_->context));
  if (config.max_tokens && encoding.ids.size() > most) {
    remark(*state_, fmt::format("the text has {} tokens, and the model reads the first {}",
                                encoding.ids.size(), most));
    cut(&encoding, most);
  }
  return embed(encoding.ids);
}

}  // namespace haul
