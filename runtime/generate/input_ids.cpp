#include "runtime/generate/input_ids.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/generate/state.h"

namespace haul::runtime {

void check_ids(std::span<const TokenId> ids, std::int64_t vocabulary) {
  if (ids.empty()) throw Error(ErrorKind::kUsage, "there is no text: it has no tokens");
  const auto largest = static_cast<std::int64_t>(*std::max_element(ids.begin(), ids.end()));
  if (vocabulary > 0 && largest >= vocabulary) {
    throw Error(ErrorKind::kUsage, fmt::format("the token id {} is beyond the model's {} tokens",
                                               largest, vocabulary));
  }
}

at::Tensor one_sequence(std::span<const TokenId> ids, const LoadedModel::State& state) {
  check_ids(ids, state.dimensions().vocabulary);
  const auto tokens = static_cast<std::int64_t>(ids.size());
  if (tokens > state.context) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the text has {} tokens, and the context {}", tokens, state.context),
                "shorten the text, or plan for a longer context");
  }
  at::Tensor result = at::empty({1, tokens}, at::kLong);
  std::copy(ids.begin(), ids.end(), result.mutable_data_ptr<std::int64_t>());
  return result;
}

}  // namespace haul::runtime
