#include "core/formats/gguf_value.h"

#include <cstring>

#include "core/base/utf8.h"

namespace haul::core {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Calls `use` with element `index` in its own type; strings and arrays are not for it.
template <typename Use>
auto with_scalar(const GgufValue& value, std::uint64_t index, Use use) {
  const std::byte* at = value.payload.data() + index * scalar_bytes(value.kind);
  switch (value.kind) {
    case GgufKind::kU8:
      return use(load<std::uint8_t>(at));
    case GgufKind::kI8:
      return use(load<std::int8_t>(at));
    case GgufKind::kU16:
      return use(load<std::uint16_t>(at));
    case GgufKind::kI16:
      return use(load<std::int16_t>(at));
    case GgufKind::kU32:
      return use(load<std::uint32_t>(at));
    case GgufKind::kI32:
      return use(load<std::int32_t>(at));
    case GgufKind::kF32:
      return use(load<float>(at));
    case GgufKind::kBool:
      return use(load<std::uint8_t>(at) != 0);
    case GgufKind::kU64:
      return use(load<std::uint64_t>(at));
    case GgufKind::kI64:
      return use(load<std::int64_t>(at));
    default:
      return use(load<double>(at));
  }
}

bool is_integer(const GgufValue& value) {
  return scalar_bytes(value.kind) != 0 && value.kind != GgufKind::kF32 &&
         value.kind != GgufKind::kF64;
}

bool is_number(const GgufValue& value) {
  return scalar_bytes(value.kind) != 0 && value.kind != GgufKind::kBool;
}

constexpr auto kAsInteger = [](auto number) { return static_cast<std::int64_t>(number); };
constexpr auto kAsDouble = [](auto number) { return static_cast<double>(number); };

}  // namespace

Bytes scalar_bytes(GgufKind kind) {
  switch (kind) {
    case GgufKind::kU8:
    case GgufKind::kI8:
    case GgufKind::kBool:
      return 1;
    case GgufKind::kU16:
    case GgufKind::kI16:
      return 2;
    case GgufKind::kU32:
    case GgufKind::kI32:
    case GgufKind::kF32:
      return 4;
    case GgufKind::kU64:
    case GgufKind::kI64:
    case GgufKind::kF64:
      return 8;
    case GgufKind::kString:
    case GgufKind::kArray:
      return 0;
  }
  return 0;
}

std::optional<std::int64_t> GgufValue::integer() const {
  if (is_array || !is_integer(*this)) return std::nullopt;
  const std::int64_t result = with_scalar(*this, 0, kAsInteger);
  if (kind == GgufKind::kU64 && result < 0) return std::nullopt;
  return result;
}

std::optional<double> GgufValue::number() const {
  if (is_array || !is_number(*this)) return std::nullopt;
  return with_scalar(*this, 0, kAsDouble);
}

std::optional<std::string_view> GgufValue::text() const {
  if (is_array || kind != GgufKind::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size());
}

std::vector<std::int64_t> GgufValue::integers() const {
  std::vector<std::int64_t> result;
  if (!is_array || !is_integer(*this)) return result;
  result.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) result.push_back(with_scalar(*this, i, kAsInteger));
  return result;
}

std::vector<double> GgufValue::numbers() const {
  std::vector<double> result;
  if (!is_array || !is_number(*this)) return result;
  result.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) result.push_back(with_scalar(*this, i, kAsDouble));
  return result;
}

std::vector<std::string_view> GgufValue::texts() const {
  std::vector<std::string_view> result;
  if (!is_array || kind != GgufKind::kString) return result;
  result.reserve(count);
  const std::byte* at = payload.data();
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto length = load<std::uint64_t>(at);
    at += sizeof(length);
    result.emplace_back(reinterpret_cast<const char*>(at), length);
    at += length;
  }
  return result;
}

std::optional<Json> GgufValue::json() const {
  constexpr std::uint64_t kMaxElements = 64;
  if (!is_array) {
    if (const auto string = text()) {
      return is_utf8(*string) ? std::optional<Json>(*string) : std::nullopt;
    }
    return with_scalar(*this, 0, [](auto number) { return Json(number); });
  }
  if (count > kMaxElements) return std::nullopt;
  Json array = Json::array();
  if (kind == GgufKind::kString) {
    for (const std::string_view string : texts()) {
      if (!is_utf8(string)) return std::nullopt;
      array.push_back(string);
    }
    return array;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    array.push_back(with_scalar(*this, i, [](auto number) { return Json(number); }));
  }
  return array;
}

}  // namespace haul::core
