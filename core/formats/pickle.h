#pragma once

// A pickle read as data: a graph of values in which a call is a note of what would be called with
// what. Nothing is imported, built or run; what a call means is up to the reader of the graph.
// Pure; any thread. Errors are kCorrupt or kUnsupported and name the byte or the global; the caller
// adds the file's name.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace haul::core {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kBigInt,  // does not fit 64 bits; text is its little-endian two's complement
  kFloat,
  kString,
  kBytes,
  kTuple,
  kList,
  kSet,
  kDict,        // items are key, value, key, value, …
  kGlobal,      // a name that was allowed
  kCall,        // items are the callee, its arguments (a tuple), then key, value, … set on it
  kPersistent,  // items are the one id that the pickle gives for an object outside of it
};

class Pickle {
 public:
  using Id = std::uint32_t;  // of a value; values may be shared and may contain themselves
  // The caller's number for "module.name", or nothing to refuse it.
  using GlobalTable = std::optional<std::uint32_t> (*)(std::string_view name);

  // Reads one pickle of protocol 2 to 5. Memory is bounded by about 50 times its bytes, of which
  // there may be 100 million. The bytes must outlive the object.
  Pickle(std::string_view bytes, GlobalTable globals);

  Id root() const { return root_; }
  std::size_t size() const { return values_.size(); }  // ids are below this
  PickleKind kind(Id id) const { return values_[id].kind; }
  // kBool, kInt.
  std::int64_t integer(Id id) const { return static_cast<std::int64_t>(values_[id].payload); }
  // kString, kBytes, kBigInt: into the pickle's bytes.
  std::string_view text(Id id) const;
  double number(Id id) const;  // kFloat
  std::uint32_t global(Id id) const { return static_cast<std::uint32_t>(values_[id].payload); }
  // Elements of tuples, lists, sets, dicts, calls and persistent objects; empty for the others.
  std::span<const Id> items(Id id) const;
  // Whether a state was set on a call's result (and forgotten).
  bool has_state(Id id) const { return values_[id].has_state; }

 private:
  friend class PickleReader;
  struct Value {
    PickleKind kind = PickleKind::kNone;
    bool has_state = false;
    std::uint32_t length = 0;   // of the text or of the items
    std::uint64_t payload = 0;  // a number, or where the text or the items begin
  };

  bool has_items(Id id) const;
  Id add(Value value);
  Id add_sequence(PickleKind kind, std::span<const Id> items);
  void append(Id id, std::span<const Id> items);

  std::string_view bytes_;
  std::vector<Value> values_;
  std::vector<Id> pool_;  // items of all containers; one that grows moves to the end
  Id root_ = 0;
};

}  // namespace haul::core
