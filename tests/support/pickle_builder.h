#pragma once

// Pickles from pieces: each function gives the bytes that push one value.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/zip_builder.h"

namespace haul::test::pickled {

inline std::string text(const std::string& value) {
  return "X" + little_endian(value.size(), 4) + value;
}

inline std::string integer(std::int64_t value) {
  return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}

inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

inline std::string tuple(const std::vector<std::string>& items) {
  std::string bytes = "(";
  for (const std::string& item : items) bytes += item;
  return bytes + "t";
}

inline std::string integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(integer(value));
  return tuple(items);
}

inline std::string list(const std::vector<std::string>& items) {
  std::string bytes = "](";
  for (const std::string& item : items) bytes += item;
  return bytes + "e";
}

using Entries = std::vector<std::pair<std::string, std::string>>;  // pushes of keys and of values

inline std::string set_items(const Entries& entries) {
  std::string bytes = "(";
  for (const auto& [key, value] : entries) bytes += key + value;
  return bytes + "u";
}

inline std::string dict(const Entries& entries) {
  return "}" + set_items(entries);
}

inline std::string call(const std::string& callee, const std::vector<std::string>& arguments) {
  return callee + tuple(arguments) + "R";
}

inline std::string ordered_dict(const Entries& entries) {
  return call(global("collections", "OrderedDict"), {}) + set_items(entries);
}

inline std::string storage(const std::string& type, const std::string& key, std::int64_t count) {
  const bool untyped = type == "UntypedStorage";
  return tuple({text("storage"), global(untyped ? "torch.storage" : "torch", type), text(key),
                text("cpu"), integer(count)}) +
         "Q";
}

inline std::string tensor(const std::string& storage_bytes, std::int64_t offset,
                          const std::vector<std::int64_t>& size,
                          const std::vector<std::int64_t>& stride) {
  return call(
      global("torch._utils", "_rebuild_tensor_v2"),
      {storage_bytes, integer(offset), integers(size), integers(stride), "\x89", ordered_dict({})});
}

// A whole pickle of protocol 2.
inline std::string whole(const std::string& value) {
  return "\x80\x02" + value + ".";
}

}  // namespace haul::test::pickled
