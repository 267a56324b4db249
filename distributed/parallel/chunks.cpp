#include "distributed/parallel/chunks.h"

#include <algorithm>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "haul/error.h"
#include "haul/torch/split.h"

namespace haul::distributed {
namespace {

using List = PipelineValue::List;
using Map = PipelineValue::Map;

// Calls `visit` for every tensor that has rows.
template <typename Visit>
void for_each_batch(const PipelineValue& value, const Visit& visit) {
  if (const auto* const tensor = std::get_if<at::Tensor>(&value.value)) {
    if (tensor->defined() && tensor->dim() > 0) visit(*tensor);
  } else if (const auto* const list = std::get_if<List>(&value.value)) {
    for (const PipelineValue& item : *list) for_each_batch(item, visit);
  } else if (const auto* const map = std::get_if<Map>(&value.value)) {
    for (const auto& [name, item] : *map) for_each_batch(item, visit);
  }
}

PipelineValue part_of(const PipelineValue& value, const Share& share) {
  if (const auto* const tensor = std::get_if<at::Tensor>(&value.value)) {
    if (!tensor->defined() || tensor->dim() == 0) return value;
    return {tensor->narrow(0, share.begin, share.count)};
  }
  if (const auto* const list = std::get_if<List>(&value.value)) {
    List parts;
    for (const PipelineValue& item : *list) parts.push_back(part_of(item, share));
    return {std::move(parts)};
  }
  if (const auto* const map = std::get_if<Map>(&value.value)) {
    Map parts;
    for (const auto& [name, item] : *map) parts.emplace(name, part_of(item, share));
    return {std::move(parts)};
  }
  return value;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::kUsage, "the chunks of a batch gave " + what,
              "a pipeline's output has a row for each row of its input");
}

using Parts = std::vector<const PipelineValue*>;

template <typename T>
std::vector<const T*> all_as(const Parts& parts) {
  std::vector<const T*> result;
  for (const PipelineValue* const part : parts) {
    result.push_back(std::get_if<T>(&part->value));
    if (result.back() == nullptr) refuse("values of different kinds");
  }
  return result;
}

PipelineValue join(const Parts& parts);

PipelineValue join_tensors(const Parts& parts) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor* const tensor : all_as<at::Tensor>(parts)) {
    if (!tensor->defined()) return *parts.front();
    if (tensor->dim() == 0) refuse("a number each, which cannot be put together");
    if (tensor->sizes().slice(1) != all_as<at::Tensor>(parts)[0]->sizes().slice(1)) {
      refuse(fmt::format("tensors that differ: ({}) and ({})",
                         fmt::join(all_as<at::Tensor>(parts)[0]->sizes(), ", "),
                         fmt::join(tensor->sizes(), ", ")));
    }
    rows.push_back(*tensor);
  }
  return {at::cat(rows)};
}

PipelineValue join_lists(const Parts& parts) {
  const auto lists = all_as<List>(parts);
  List result;
  for (std::size_t i = 0; i < lists[0]->size(); ++i) {
    Parts items;
    for (const List* const list : lists) {
      if (list->size() != lists[0]->size()) refuse("lists of different lengths");
      items.push_back(&(*list)[i]);
    }
    result.push_back(join(items));
  }
  return {std::move(result)};
}

PipelineValue join_maps(const Parts& parts) {
  const auto maps = all_as<Map>(parts);
  Map result;
  for (const auto& [name, first] : *maps[0]) {
    Parts items;
    for (const Map* const map : maps) {
      const auto found = map->find(name);
      if (found == map->end() || map->size() != maps[0]->size()) refuse("maps of different names");
      items.push_back(&found->second);
    }
    result.emplace(name, join(items));
  }
  return {std::move(result)};
}

template <typename T>
PipelineValue same(const Parts& parts) {
  for (const T* const one : all_as<T>(parts)) {
    if (*one != std::get<T>(parts.front()->value)) refuse("values that differ and are no tensors");
  }
  return *parts.front();
}

PipelineValue join(const Parts& parts) {
  if (parts.size() == 1) return *parts.front();
  const auto& first = parts.front()->value;
  if (std::holds_alternative<at::Tensor>(first)) return join_tensors(parts);
  if (std::holds_alternative<List>(first)) return join_lists(parts);
  if (std::holds_alternative<Map>(first)) return join_maps(parts);
  if (std::holds_alternative<bool>(first)) return same<bool>(parts);
  if (std::holds_alternative<std::int64_t>(first)) return same<std::int64_t>(parts);
  if (std::holds_alternative<double>(first)) return same<double>(parts);
  if (std::holds_alternative<std::string>(first)) return same<std::string>(parts);
  return same<std::monostate>(parts);
}

}  // namespace

std::vector<PipelineValue> split_rows(const PipelineValue& batch, std::int64_t count) {
  std::optional<std::int64_t> rows;
  for_each_batch(batch, [&](const at::Tensor& tensor) {
    if (rows && *rows != tensor.size(0)) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("a batch of tensors of {} rows and of {}", *rows, tensor.size(0)),
                  "tensors that are the same for all rows are given a row for each");
    }
    rows = tensor.size(0);
  });
  const std::int64_t parts =
      std::clamp<std::int64_t>(count, 1, std::max<std::int64_t>(1, rows.value_or(1)));
  std::vector<PipelineValue> result;
  for (std::int64_t i = 0; i < parts; ++i) {
    result.push_back(rows ? part_of(batch, share_of(*rows, i, parts)) : batch);
  }
  return result;
}

PipelineValue join_rows(const std::vector<PipelineValue>& parts) {
  Parts all;
  for (const PipelineValue& part : parts) all.push_back(&part);
  return join(all);
}

}  // namespace haul::distributed
