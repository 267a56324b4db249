#pragma once

// The pickle machine: a stack, a memo, and one step an opcode. It fills a Pickle and is part of
// its constructor; nothing else uses it.

#include <span>
#include <string_view>
#include <vector>

#include "core/formats/pickle.h"

namespace haul::core {

class PickleReader {
 public:
  PickleReader(Pickle& pickle, std::string_view bytes, Pickle::GlobalTable globals);

  // Reads up to STOP, which must be the last byte, and gives the value that it returns.
  Pickle::Id read();

 private:
  using Id = Pickle::Id;
  enum class Step { kGoOn, kStop };

  [[noreturn]] void corrupt(std::string_view message) const;
  [[noreturn]] void unsupported(std::string_view message) const;

  Step step();
  // One group of opcodes each; they tell whether the opcode was theirs.
  bool read_number(unsigned op);
  bool read_text(unsigned op);
  bool read_container(unsigned op);
  bool read_object(unsigned op);
  bool read_stack(unsigned op);
  bool read_memo(unsigned op);

  std::string_view take(std::uint64_t count);
  std::string_view take_line();
  std::uint64_t take_unsigned(std::size_t width);

  void push(Id id) { stack_.push_back(id); }
  void push_int(PickleKind kind, std::int64_t value);
  void push_text(PickleKind kind, std::uint64_t length);
  void push_long(std::uint64_t length);
  void push_tuple(std::size_t count);
  void push_global(std::string_view module, std::string_view name);
  void push_call();
  Id pop();
  Id& top();
  // The values since the last mark, which goes away; the values stay on the stack until cut().
  std::span<const Id> since_mark();
  void cut(std::size_t count) { stack_.resize(stack_.size() - count); }
  void append_to(std::span<const PickleKind> kinds, std::size_t count);
  void put(std::uint64_t index);
  void get(std::uint64_t index);

  Pickle& pickle_;
  std::string_view bytes_;
  Pickle::GlobalTable globals_;
  std::size_t position_ = 0;
  std::size_t opcode_at_ = 0;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::vector<Id> memo_;
  std::size_t memoized_ = 0;
};

}  // namespace haul::core
