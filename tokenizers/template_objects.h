#pragma once

// The objects that a render brings along: functions, namespaces, loops.

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

class Builtin : public Object {
 public:
  using Call = std::function<Value(Budget&, const Arguments&)>;
  explicit Builtin(Call call) : call_(std::move(call)) {}
  std::string type() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Budget& budget, const Arguments& arguments) override {
    return call_(budget, arguments);
  }

 private:
  Call call_;
};

// Its values may refer to it: whoever makes one owns it, values only point to it.
class Namespace : public Object {
 public:
  std::string type() const override { return "Namespace"; }
  bool attribute(const std::string& name, Value& value) override;
  // Throws Error for a private name.
  void set(const std::string& name, Value value, Budget& budget);

 private:
  Pairs entries_;
};

// What `loop` is inside of a loop. Elements that the loop's condition leaves out are skipped only
// when their turn comes, because the body may change what the condition looks at.
class Loop : public Object {
 public:
  using Condition = std::function<bool(const Value&)>;
  Loop(List items, Condition condition);
  std::string type() const override { return "LoopContext"; }
  bool attribute(const std::string& name, Value& value) override;

  // The next element; false at the end.
  bool next(Value& item);

 private:
  bool peek();
  std::int64_t length();

  List items_;
  Condition condition_;  // may be empty
  std::size_t at_ = 0;
  std::int64_t index0_ = -1;
  std::int64_t length_ = -1;
  bool has_after_ = false;
  Value after_, current_, before_;
};

// `make` keeps namespaces alive for as long as the render lasts.
using MakeNamespace = std::function<std::shared_ptr<Namespace>()>;

// range, dict, namespace, joiner, cycler, raise_exception, strftime_now.
std::vector<std::pair<std::string, Value>> global_functions(const MakeNamespace& make,
                                                            std::time_t now);

}  // namespace haul::tokenizers::jinja
