#include "runtime/generate/input_ids.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/generate/state.h"

namespace haul::runtime {

void check_ids(const at::Tensor& ids, const LoadedModel::State& state) {
  if (ids.numel() == 0) throw Error(ErrorKind::kUsage, "there is no prompt: it has no tokens");
  const std::int64_t known = state.dimensions().vocabulary;
  if (known == 0) return;
  const auto least = ids.min().item<std::int64_t>();
  const auto most = ids.max().item<std::int64_t>();
  if (least >= 0 && most < known) return;
  throw Error(ErrorKind::kUsage, fmt::format("token {} is not in the vocabulary of {} tokens",
                                             least < 0 ? least : most, known));
}

at::Tensor one_sequence(std::span<const TokenId> ids, const LoadedModel::State& state) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  if (tokens > state.context) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the text has {} tokens, and the context {}", tokens, state.context),
                "shorten the text, or plan for a longer context");
  }
  at::Tensor result = at::empty({1, tokens}, at::kLong);
  std::copy(ids.begin(), ids.end(), result.mutable_data_ptr<std::int64_t>());
  check_ids(result, state);
  return result;
}

}  // namespace haul::runtime
