// What can be done to encodings as lists: cutting, joining, padding.

#include <algorithm>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/post_processor.h"

namespace haul::tokenizers {
namespace {

// Combining what overflows of several sequences multiplies; beyond this it is an accident.
constexpr std::size_t kMaxOverflowing = 100'000;

// Calls take(list, other's list) for each of the parallel lists.
template <class Take>
void for_each_list(Encoding& encoding, const Encoding& other, Take&& take) {
  take(encoding.ids, other.ids);
  take(encoding.type_ids, other.type_ids);
  take(encoding.tokens, other.tokens);
  take(encoding.offsets, other.offsets);
  take(encoding.special_tokens_mask, other.special_tokens_mask);
  take(encoding.attention_mask, other.attention_mask);
}

Encoding slice(const Encoding& encoding, std::size_t begin, std::size_t end) {
  Encoding part;
  for_each_list(part, encoding, [&](auto& to, const auto& from) {
    to.assign(from.begin() + static_cast<std::ptrdiff_t>(begin),
              from.begin() + static_cast<std::ptrdiff_t>(end));
  });
  return part;
}

void check_stride(std::size_t stride, std::size_t max_length) {
  if (stride < max_length) return;
  throw Error(ErrorKind::kUsage, fmt::format("truncation: the stride of {} is not less than the {} "
                                             "tokens that are left for text",
                                             stride, max_length));
}

[[noreturn]] void refuse_missing_second() {
  throw Error(ErrorKind::kUsage, "truncation of the second sequence, and there is only one");
}

void cut(Encoding& encoding, std::size_t max_length, std::size_t stride, bool left) {
  const std::size_t length = encoding.ids.size();
  if (max_length >= length) return;
  if (max_length == 0) {
    Encoding rest = std::move(encoding);
    encoding = Encoding{};
    encoding.overflowing.push_back(std::move(rest));
    return;
  }
  check_stride(stride, max_length);
  const std::size_t step = max_length - stride;
  std::vector<Encoding> parts;
  for (std::size_t moved = 0; moved < length; moved += step) {
    std::size_t begin = moved;
    std::size_t end = std::min(moved + max_length, length);
    if (left) {
      end = length - moved;
      begin = end > max_length ? end - max_length : 0;
    }
    parts.push_back(slice(encoding, begin, end));
    if (left ? begin == 0 : end == length) break;
  }
  encoding = std::move(parts.front());
  encoding.overflowing.assign(std::make_move_iterator(parts.begin() + 1),
                              std::make_move_iterator(parts.end()));
}

void append(Encoding& encoding, const Encoding& other) {
  std::vector<Encoding> overflowing;
  const auto combine = [&](const Encoding& first, const Encoding& second) {
    if (overflowing.size() >= kMaxOverflowing) {
      throw Error(ErrorKind::kResource, "truncation leaves too many overflowing combinations");
    }
    overflowing.push_back(first);
    append(overflowing.back(), second);
  };
  for (const Encoding& part : encoding.overflowing) {
    combine(part, other);
    for (const Encoding& second : other.overflowing) combine(part, second);
  }
  for (const Encoding& second : other.overflowing) combine(encoding, second);
  for_each_list(encoding, other,
                [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); });
  encoding.overflowing = std::move(overflowing);
}

}  // namespace

void truncate(std::vector<Encoding>& encodings, const Truncation& truncation) {
  const auto cut_to = [&](Encoding& encoding, std::size_t length) {
    cut(encoding, length, truncation.stride, truncation.left);
  };
  std::size_t total = 0;
  for (const Encoding& encoding : encodings) total += encoding.ids.size();
  if (truncation.max_length == 0) {
    for (Encoding& encoding : encodings) cut_to(encoding, 0);
    return;
  }
  if (total <= truncation.max_length) return;
  const std::size_t excess = total - truncation.max_length;
  if (truncation.strategy != Truncation::Strategy::kLongestFirst) {
    const std::size_t index = truncation.strategy == Truncation::Strategy::kOnlyFirst ? 0 : 1;
    if (index >= encodings.size()) refuse_missing_second();
    const std::size_t length = encodings[index].ids.size();
    if (length <= excess) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("truncation: the sequence of {} tokens is too short to lose {}",
                              length, excess));
    }
    cut_to(encodings[index], length - excess);
    return;
  }
  if (encodings.size() == 1) return cut_to(encodings[0], truncation.max_length);
  std::size_t shorter = encodings[0].ids.size();
  std::size_t longer = encodings[1].ids.size();
  const bool swapped = shorter > longer;
  if (swapped) std::swap(shorter, longer);
  longer = shorter > truncation.max_length ? shorter
                                           : std::max(shorter, truncation.max_length - shorter);
  if (shorter + longer > truncation.max_length) {
    shorter = truncation.max_length / 2;
    longer = shorter + truncation.max_length % 2;
  }
  if (swapped) std::swap(shorter, longer);
  cut_to(encodings[0], shorter);
  cut_to(encodings[1], longer);
}

Encoding join(std::vector<Encoding> encodings) {
  Encoding result;
  for (const Encoding& encoding : encodings) append(result, encoding);
  return result;
}

std::size_t padded_length(std::size_t longest, const Padding& padding) {
  std::size_t length = padding.fixed.value_or(longest);
  if (padding.multiple_of > 0 && length % padding.multiple_of > 0) {
    length += padding.multiple_of - length % padding.multiple_of;
  }
  return length;
}

void pad(Encoding& encoding, std::size_t length, const Padding& padding) {
  for (Encoding& part : encoding.overflowing) pad(part, length, padding);
  if (encoding.ids.size() >= length) return;
  const std::size_t count = length - encoding.ids.size();
  const auto fill = [&](auto& list, const auto& value) {
    list.insert(padding.left ? list.begin() : list.end(), count, value);
  };
  fill(encoding.ids, padding.id);
  fill(encoding.type_ids, padding.type_id);
  fill(encoding.tokens, padding.token);
  fill(encoding.offsets, std::pair<std::size_t, std::size_t>{0, 0});
  fill(encoding.special_tokens_mask, 1u);
  fill(encoding.attention_mask, 0u);
}

void truncate_ids(std::vector<TokenId>& ids, std::size_t begin, const Truncation& truncation) {
  if (ids.size() - begin <= truncation.max_length) return;
  if (truncation.max_length > 0) {
    if (truncation.strategy == Truncation::Strategy::kOnlySecond) refuse_missing_second();
    check_stride(truncation.stride, truncation.max_length);
  }
  if (truncation.left) {
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(begin),
              ids.end() - static_cast<std::ptrdiff_t>(truncation.max_length));
  } else {
    ids.resize(begin + truncation.max_length);
  }
}

void pad_ids(std::vector<TokenId>& ids, std::size_t length, const Padding& padding) {
  if (ids.size() >= length) return;
  ids.insert(padding.left ? ids.begin() : ids.end(), length - ids.size(), padding.id);
}

}  // namespace haul::tokenizers
