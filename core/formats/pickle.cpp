#include "core/formats/pickle.h"

#include <algorithm>
#include <bit>

#include "core/formats/pickle_reader.h"

namespace haul::core {

Pickle::Pickle(std::string_view bytes, GlobalTable globals) : bytes_(bytes) {
  root_ = PickleReader(*this, bytes, globals).read();
}

std::string_view Pickle::text(Id id) const {
  const Value& value = values_[id];
  const bool is_text = value.kind == PickleKind::kString || value.kind == PickleKind::kBytes ||
                       value.kind == PickleKind::kBigInt;
  return is_text ? bytes_.substr(value.payload, value.length) : std::string_view();
}

double Pickle::number(Id id) const {
  return std::bit_cast<double>(values_[id].payload);
}

bool Pickle::has_items(Id id) const {
  switch (values_[id].kind) {
    case PickleKind::kTuple:
    case PickleKind::kList:
    case PickleKind::kSet:
    case PickleKind::kDict:
    case PickleKind::kCall:
    case PickleKind::kPersistent:
      return true;
    default:
      return false;
  }
}

std::span<const Pickle::Id> Pickle::items(Id id) const {
  if (!has_items(id)) return {};
  return std::span(pool_).subspan(values_[id].payload, values_[id].length);
}

Pickle::Id Pickle::add(Value value) {
  values_.push_back(value);
  return static_cast<Id>(values_.size() - 1);
}

Pickle::Id Pickle::add_sequence(PickleKind kind, std::span<const Id> items) {
  Value value;
  value.kind = kind;
  value.length = static_cast<std::uint32_t>(items.size());
  value.payload = pool_.size();
  pool_.insert(pool_.end(), items.begin(), items.end());
  return add(value);
}

// A container of n items has room for the next power of two, so moves cost little on the whole.
void Pickle::append(Id id, std::span<const Id> items) {
  if (items.empty()) return;
  Value& value = values_[id];
  const std::uint32_t old_length = value.length;
  const auto length = static_cast<std::uint32_t>(old_length + items.size());
  if (old_length == 0 || std::bit_ceil(length) != std::bit_ceil(old_length)) {
    const std::uint64_t place = pool_.size();
    pool_.resize(place + std::bit_ceil(length));
    std::copy_n(pool_.begin() + static_cast<std::ptrdiff_t>(value.payload), old_length,
                pool_.begin() + static_cast<std::ptrdiff_t>(place));
    value.payload = place;
  }
  std::copy(items.begin(), items.end(),
            pool_.begin() + static_cast<std::ptrdiff_t>(value.payload + old_length));
  value.length = length;
}

}  // namespace haul::core
