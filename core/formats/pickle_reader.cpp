#include "core/formats/pickle_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::size_t kMaxBytes = 100'000'000;
constexpr unsigned kFirstProtocol = 2;
constexpr unsigned kLastProtocol = 5;
constexpr Pickle::Id kNothing = std::numeric_limits<Pickle::Id>::max();

enum Opcode : unsigned {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kInst = 'i',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinFloat = 'G',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

constexpr std::array kLists = {PickleKind::kList};
constexpr std::array kSets = {PickleKind::kSet};
constexpr std::array kDicts = {PickleKind::kDict, PickleKind::kCall};

}  // namespace

PickleReader::PickleReader(Pickle& pickle, std::string_view bytes, Pickle::GlobalTable globals)
    : pickle_(pickle), bytes_(bytes), globals_(globals) {}

void PickleReader::corrupt(std::string_view message) const {
  throw Error(ErrorKind::kCorrupt, fmt::format("pickle, byte {}: {}", opcode_at_, message));
}

void PickleReader::unsupported(std::string_view message) const {
  throw Error(ErrorKind::kUnsupported, fmt::format("pickle, byte {}: {}", opcode_at_, message));
}

Pickle::Id PickleReader::read() {
  if (bytes_.size() > kMaxBytes) {
    unsupported(fmt::format("its {} bytes are more than the {} that are read at most",
                            bytes_.size(), kMaxBytes));
  }
  while (step() == Step::kGoOn) {
  }
  if (stack_.size() != 1 || !marks_.empty()) {
    corrupt(fmt::format("it ends with {} values on the stack, not with one", stack_.size()));
  }
  if (position_ != bytes_.size()) corrupt("bytes follow its end");
  return stack_.front();
}

PickleReader::Step PickleReader::step() {
  opcode_at_ = position_;
  const auto op = static_cast<unsigned>(take_unsigned(1));
  if (op == kStop) return Step::kStop;
  if (op == kProto) {
    const auto protocol = take_unsigned(1);
    if (protocol < kFirstProtocol || protocol > kLastProtocol) {
      unsupported(fmt::format("protocol {}, where {} to {} are read", protocol, kFirstProtocol,
                              kLastProtocol));
    }
  } else if (op == kFrame) {
    if (take_unsigned(8) > bytes_.size() - position_) corrupt("a frame reaches beyond its end");
  } else if (!read_stack(op) && !read_memo(op) && !read_number(op) && !read_text(op) &&
             !read_container(op) && !read_object(op)) {
    unsupported(fmt::format("opcode 0x{:02x}, which no checkpoint of tensors needs", op));
  }
  return Step::kGoOn;
}

bool PickleReader::read_stack(unsigned op) {
  switch (op) {
    case kMark:
      marks_.push_back(stack_.size());
      return true;
    case kPop:
      pop();
      return true;
    case kPopMark:
      cut(since_mark().size());
      return true;
    case kDup:
      push(Id{top()});
      return true;
    default:
      return false;
  }
}

bool PickleReader::read_memo(unsigned op) {
  switch (op) {
    case kBinPut:
      put(take_unsigned(1));
      return true;
    case kLongBinPut:
      put(take_unsigned(4));
      return true;
    case kMemoize:
      put(memoized_);
      return true;
    case kBinGet:
      get(take_unsigned(1));
      return true;
    case kLongBinGet:
      get(take_unsigned(4));
      return true;
    default:
      return false;
  }
}

bool PickleReader::read_number(unsigned op) {
  switch (op) {
    case kNone:
      push_int(PickleKind::kNone, 0);
      return true;
    case kNewTrue:
    case kNewFalse:
      push_int(PickleKind::kBool, op == kNewTrue ? 1 : 0);
      return true;
    case kBinInt:
      push_int(PickleKind::kInt, static_cast<std::int32_t>(take_unsigned(4)));
      return true;
    case kBinInt1:
      push_int(PickleKind::kInt, static_cast<std::int64_t>(take_unsigned(1)));
      return true;
    case kBinInt2:
      push_int(PickleKind::kInt, static_cast<std::int64_t>(take_unsigned(2)));
      return true;
    case kLong1:
      push_long(take_unsigned(1));
      return true;
    case kLong4:
      push_long(take_unsigned(4));
      return true;
    case kBinFloat: {
      std::uint64_t value = 0;
      for (const char byte : take(8)) value = value << 8 | static_cast<unsigned char>(byte);
      push_int(PickleKind::kFloat, static_cast<std::int64_t>(value));
      return true;
    }
    default:
      return false;
  }
}

bool PickleReader::read_text(unsigned op) {
  switch (op) {
    case kShortBinUnicode:
      push_text(PickleKind::kString, take_unsigned(1));
      return true;
    case kBinUnicode:
      push_text(PickleKind::kString, take_unsigned(4));
      return true;
    case kBinUnicode8:
      push_text(PickleKind::kString, take_unsigned(8));
      return true;
    case kShortBinString:
    case kShortBinBytes:
      push_text(PickleKind::kBytes, take_unsigned(1));
      return true;
    case kBinString:
    case kBinBytes:
      push_text(PickleKind::kBytes, take_unsigned(4));
      return true;
    case kBinBytes8:
    case kByteArray8:
      push_text(PickleKind::kBytes, take_unsigned(8));
      return true;
    default:
      return false;
  }
}

bool PickleReader::read_container(unsigned op) {
  switch (op) {
    case kEmptyTuple:
      push_tuple(0);
      return true;
    case kTuple1:
    case kTuple2:
    case kTuple3:
      push_tuple(op - kTuple1 + 1);
      return true;
    case kTuple:
      push_tuple(since_mark().size());
      return true;
    case kEmptyList:
      push(pickle_.add_sequence(PickleKind::kList, {}));
      return true;
    case kEmptyDict:
      push(pickle_.add_sequence(PickleKind::kDict, {}));
      return true;
    case kEmptySet:
      push(pickle_.add_sequence(PickleKind::kSet, {}));
      return true;
    case kFrozenSet: {
      const auto items = since_mark();
      const Id set = pickle_.add_sequence(PickleKind::kSet, items);
      cut(items.size());
      push(set);
      return true;
    }
    case kAppend:
      append_to(kLists, 1);
      return true;
    case kAppends:
      append_to(kLists, since_mark().size());
      return true;
    case kAddItems:
      append_to(kSets, since_mark().size());
      return true;
    case kSetItem:
      append_to(kDicts, 2);
      return true;
    case kSetItems: {
      const std::size_t count = since_mark().size();
      if (count % 2 != 0) corrupt("a key without a value");
      append_to(kDicts, count);
      return true;
    }
    default:
      return false;
  }
}

bool PickleReader::read_object(unsigned op) {
  switch (op) {
    case kGlobal: {
      const std::string_view module = take_line();
      push_global(module, take_line());
      return true;
    }
    case kInst: {
      // Looked up only so that a refusal can tell what it would have run.
      const std::string_view module = take_line();
      push_global(module, take_line());
      return false;
    }
    case kStackGlobal: {
      const Id name = pop();
      const Id module = pop();
      if (pickle_.kind(name) != PickleKind::kString ||
          pickle_.kind(module) != PickleKind::kString) {
        corrupt("the name of a global is no string");
      }
      push_global(pickle_.text(module), pickle_.text(name));
      return true;
    }
    case kReduce:
    case kNewObj:
      push_call();
      return true;
    case kBuild: {
      pop();
      if (pickle_.kind(top()) != PickleKind::kCall) corrupt("a state is set on a plain value");
      pickle_.values_[top()].has_state = true;
      return true;
    }
    case kBinPersId: {
      const std::array id = {pop()};
      push(pickle_.add_sequence(PickleKind::kPersistent, id));
      return true;
    }
    default:
      return false;
  }
}

std::string_view PickleReader::take(std::uint64_t count) {
  if (count > bytes_.size() - position_) corrupt("it ends in the middle of an opcode");
  const std::string_view taken = bytes_.substr(position_, count);
  position_ += count;
  return taken;
}

std::string_view PickleReader::take_line() {
  const std::size_t end = bytes_.find('\n', position_);
  if (end == bytes_.npos) corrupt("it ends in the middle of a name");
  const std::string_view line = take(end - position_);
  ++position_;
  return line;
}

std::uint64_t PickleReader::take_unsigned(std::size_t width) {
  const std::string_view field = take(width);
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(field[i]);
  return value;
}

void PickleReader::push_int(PickleKind kind, std::int64_t value) {
  Pickle::Value node;
  node.kind = kind;
  node.payload = static_cast<std::uint64_t>(value);
  push(pickle_.add(node));
}

void PickleReader::push_text(PickleKind kind, std::uint64_t length) {
  Pickle::Value node;
  node.kind = kind;
  node.payload = position_;
  node.length = static_cast<std::uint32_t>(take(length).size());
  push(pickle_.add(node));
}

void PickleReader::push_long(std::uint64_t length) {
  if (length > 8) return push_text(PickleKind::kBigInt, length);
  const unsigned unused = static_cast<unsigned>(8 - length) * 8;
  const std::uint64_t value = take_unsigned(length);
  // Shifted up and down again to spread the sign.
  push_int(PickleKind::kInt,
           length == 0 ? 0 : static_cast<std::int64_t>(value << unused) >> unused);
}

void PickleReader::push_tuple(std::size_t count) {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() < floor + count) corrupt("the stack is empty");
  const Id tuple =
      pickle_.add_sequence(PickleKind::kTuple, std::span<const Id>(stack_).last(count));
  cut(count);
  push(tuple);
}

void PickleReader::push_global(std::string_view module, std::string_view name) {
  std::string full;
  full.reserve(module.size() + 1 + name.size());
  full.append(module).append(".").append(name);
  const auto number = globals_(full);
  if (!number) {
    std::string shown = quote(full);
    shown = shown.substr(1, shown.size() - 2);
    throw Error(ErrorKind::kUnsupported,
                fmt::format("refuses {}: this file wants to run code", shown),
                "a checkpoint of tensors needs no such thing; if you trust the file, load it in "
                "torch and save its state_dict() alone");
  }
  push_int(PickleKind::kGlobal, *number);
}

void PickleReader::push_call() {
  const Id arguments = pop();
  const Id callee = pop();
  if (pickle_.kind(callee) != PickleKind::kGlobal) corrupt("it calls something that is no global");
  if (pickle_.kind(arguments) != PickleKind::kTuple)
    corrupt("the arguments of a call are no tuple");
  const std::array items = {callee, arguments};
  push(pickle_.add_sequence(PickleKind::kCall, items));
}

Pickle::Id PickleReader::pop() {
  const Id id = top();
  stack_.pop_back();
  return id;
}

Pickle::Id& PickleReader::top() {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) corrupt("the stack is empty");
  return stack_.back();
}

std::span<const Pickle::Id> PickleReader::since_mark() {
  if (marks_.empty()) corrupt("there is no mark on the stack");
  const std::size_t height = marks_.back();
  marks_.pop_back();
  return std::span<const Id>(stack_).subspan(height);
}

void PickleReader::append_to(std::span<const PickleKind> kinds, std::size_t count) {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() < floor + count + 1) corrupt("the stack is empty");
  const Id target = stack_[stack_.size() - count - 1];
  const PickleKind kind = pickle_.kind(target);
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    corrupt("items are added to a value of another kind");
  }
  pickle_.append(target, std::span<const Id>(stack_).last(count));
  cut(count);
}

void PickleReader::put(std::uint64_t index) {
  const Id id = top();
  // A pickle cannot remember more values than it has bytes, so larger numbers only cost memory.
  if (index >= bytes_.size()) corrupt(fmt::format("memo {} is out of range", index));
  if (index >= memo_.size()) memo_.resize(index + 1, kNothing);
  if (memo_[index] == kNothing) ++memoized_;
  memo_[index] = id;
}

void PickleReader::get(std::uint64_t index) {
  if (index >= memo_.size() || memo_[index] == kNothing) {
    corrupt(fmt::format("memo {} was never set", index));
  }
  push(memo_[index]);
}

}  // namespace haul::core
