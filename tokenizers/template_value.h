#pragma once

// What a template computes with: Python's values as far as chat templates see them. Values are
// cheap to copy and share what they hold; nothing but a namespace, an iterator and the objects of
// a render change after they were made. For one thread. Whatever Python would raise is an Error.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/template_budget.h"

namespace haul::tokenizers::jinja {

class Value;
using List = std::vector<Value>;
using Pairs = std::vector<std::pair<Value, Value>>;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,      // dict.items() and the like: has a length, no elements by number
  kIterator,  // can be walked once
  kRange,
  kObject,  // functions, macros, namespaces, loops
};

// What lives on the heap. Depth bounds every recursion over values, destructors included.
struct Cell {
  virtual ~Cell() = default;
  int depth = 1;
};

struct TextCell : Cell {
  std::string text;   // well-formed UTF-8
  bool safe = false;  // marked by |safe: text added to it is escaped
};

struct ListCell;
struct DictCell;
struct Object;

class Value {
 public:
  Value() = default;  // undefined
  static Value undefined(std::string why);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  static Value string(std::string text, bool safe = false);
  static Value list(List items) { return sequence(Kind::kList, std::move(items)); }
  static Value tuple(List items) { return sequence(Kind::kTuple, std::move(items)); }
  static Value iterator(List items) { return sequence(Kind::kIterator, std::move(items)); }
  static Value view(std::string type, List items) {
    return sequence(Kind::kView, std::move(items), std::move(type));
  }
  static Value range(std::string type, List items) {
    return sequence(Kind::kRange, std::move(items), std::move(type));
  }
  // REQUIRES: no key twice.
  static Value dict(Pairs entries);
  static Value object(std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  // Python's bool is an int.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // REQUIRES: the kind that each one names.
  std::int64_t as_integer() const { return kind_ == Kind::kBool ? boolean_ : integer_; }
  double as_real() const {
    return kind_ == Kind::kFloat ? real_ : static_cast<double>(as_integer());
  }
  const std::string& text() const { return cell<TextCell>().text; }
  bool safe() const { return cell<TextCell>().safe; }
  const List& items() const;
  const std::string& type() const;
  ListCell& walk() const;
  const Pairs& entries() const;
  Object& as_object() const;
  const std::shared_ptr<Cell>& shared() const { return cell_; }
  // Why it is undefined.
  std::string reason() const;
  int depth() const { return cell_ ? cell_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  static Value sequence(Kind kind, List items, std::string type = {});
  template <class T>
  T& cell() const {
    return static_cast<T&>(*cell_);
  }

  Kind kind_ = Kind::kUndefined;
  union {
    bool boolean_;
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Cell> cell_;
};

struct ListCell : Cell {
  List items;
  std::string type;      // of a view or a range, as Python prints it
  std::size_t next = 0;  // of an iterator
};

struct DictCell : Cell {
  Pairs entries;
};

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Object : Cell {
  virtual std::string type() const = 0;
  // Whether the object has the attribute, and its value.
  virtual bool attribute(const std::string& name, Value& value);
  virtual bool callable() const { return false; }
  virtual Value call(Budget& budget, const Arguments& arguments);
};

inline const List& Value::items() const {
  return cell<ListCell>().items;
}
inline const std::string& Value::type() const {
  return cell<ListCell>().type;
}
inline ListCell& Value::walk() const {
  return cell<ListCell>();
}
inline const Pairs& Value::entries() const {
  return cell<DictCell>().entries;
}
inline Object& Value::as_object() const {
  return cell<Object>();
}

// Throws Error(kCorrupt): what Python would raise.
[[noreturn]] void fail(const std::string& message);
// Throws when the value is undefined, saying why it is.
void require_defined(const Value& value);

// 'str', 'dict', … as Python names the type.
std::string type_name(const Value& value);
bool truth(const Value& value);
std::string str(const Value& value, Budget& budget);
std::string repr(const Value& value, Budget& budget);
std::string repr(std::string_view text);
std::string float_repr(double value);
bool equal(const Value& a, const Value& b, Budget& budget);
// a < b; throws where Python has no order.
bool less(const Value& a, const Value& b, Budget& budget);
bool hashable(const Value& value);
const Value* find(const Pairs& entries, const Value& key, Budget& budget);
const Value* find(const Pairs& entries, std::string_view key, Budget& budget);
// Adds or replaces.
void put(Pairs& entries, Value key, Value value, Budget& budget);
std::size_t length(const Value& value);
bool iterable(const Value& value);
// All elements, at the price of their walk alone: who keeps them pays for the memory. An iterator
// is empty afterwards.
List elements(const Value& value, Budget& budget);
std::string escape_html(std::string_view text);

}  // namespace haul::tokenizers::jinja
