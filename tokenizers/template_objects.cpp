#include "tokenizers/template_objects.h"

#include <algorithm>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/template_arguments.h"
#include "tokenizers/template_format.h"

namespace haul::tokenizers::jinja {
namespace {

Value function(Builtin::Call call) {
  return Value::object(std::make_shared<Builtin>(std::move(call)));
}

Value range(Budget& budget, const Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = !bound.has(1);
  const std::int64_t start = one ? 0 : bound.integer(0, 0);
  const std::int64_t stop = bound.integer(one ? 0 : 1, 0);
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) fail("range() needs a step that is not zero");
  List items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() >= Budget::kLongestRange) {
      throw Error(ErrorKind::kResource,
                  fmt::format("range() of more than {} numbers", Budget::kLongestRange));
    }
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget.step(items.size() / 16);
  budget.allocate(items.size() * sizeof(Value));
  std::string type = step == 1 ? fmt::format("range({}, {})", start, stop)
                               : fmt::format("range({}, {}, {})", start, stop, step);
  return Value::range(std::move(type), std::move(items));
}

Pairs dict_entries(Budget& budget, const Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("dict() takes at most one value");
  Pairs entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    require_defined(source);
    if (source.is(Kind::kDict)) {
      entries = source.entries();
      budget.allocate(entries.size() * 2 * sizeof(Value));
    } else {
      for (const Value& pair : elements(source, budget)) {
        List both = elements(pair, budget);
        if (both.size() != 2) fail("dict() needs pairs");
        put(entries, std::move(both[0]), std::move(both[1]), budget);
      }
    }
  }
  for (const auto& [name, value] : arguments.named)
    put(entries, Value::string(name), value, budget);
  return entries;
}

// Gives its separator from the second call on.
Value joiner(Budget&, const Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  Value separator = bound.has(0) ? bound[0] : Value::string(", ");
  auto used = std::make_shared<bool>(false);
  auto object = std::make_shared<Builtin>([separator, used](Budget&, const Arguments&) {
    return std::exchange(*used, true) ? separator : Value::string("");
  });
  object->depth = separator.depth() + 1;
  return Value::object(std::move(object));
}

class Cycler : public Object {
 public:
  explicit Cycler(List items) : items_(std::move(items)), at_(std::make_shared<std::size_t>(0)) {
    for (const Value& item : items_) depth = std::max(depth, item.depth() + 2);
  }
  std::string type() const override { return "Cycler"; }
  bool attribute(const std::string& name, Value& value) override {
    const auto bind = [this](Builtin::Call call) {
      auto object = std::make_shared<Builtin>(std::move(call));
      object->depth = depth + 1;
      return Value::object(std::move(object));
    };
    if (name == "current") {
      value = items_[*at_];
    } else if (name == "next") {
      value = bind([items = items_, at = at_](Budget&, const Arguments&) {
        const Value& current = items[*at];
        *at = (*at + 1) % items.size();
        return current;
      });
    } else if (name == "reset") {
      value = bind([at = at_](Budget&, const Arguments&) {
        *at = 0;
        return Value::none();
      });
    } else {
      return false;
    }
    return true;
  }

 private:
  List items_;
  std::shared_ptr<std::size_t> at_;
};

Value cycler(Budget&, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("cycler() needs a value");
  return Value::object(std::make_shared<Cycler>(arguments.positional));
}

Value raise(Budget& budget, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw Error(ErrorKind::kUsage, str(bound[0], budget));
}

}  // namespace

bool Namespace::attribute(const std::string& name, Value& value) {
  for (const auto& [key, item] : entries_) {
    if (key.text() == name) {
      value = item;
      return true;
    }
  }
  return false;
}

void Namespace::set(const std::string& name, Value value, Budget& budget) {
  if (name.starts_with('_')) fail(fmt::format("a namespace keeps no private name like '{}'", name));
  put(entries_, Value::string(name), std::move(value), budget);
}

Loop::Loop(List items, Condition condition)
    : items_(std::move(items)), condition_(std::move(condition)) {
  for (const Value& item : items_) depth = std::max(depth, item.depth() + 1);
}

bool Loop::peek() {
  if (has_after_) return true;
  while (at_ < items_.size()) {
    const Value& item = items_[at_++];
    if (condition_ && !condition_(item)) continue;
    after_ = item;
    has_after_ = true;
    return true;
  }
  return false;
}

bool Loop::next(Value& item) {
  if (!peek()) return false;
  has_after_ = false;
  ++index0_;
  before_ = std::move(current_);
  current_ = after_;
  item = current_;
  return true;
}

std::int64_t Loop::length() {
  if (length_ >= 0) return length_;
  if (condition_) {
    List rest;
    for (; at_ < items_.size(); ++at_) {
      if (condition_(items_[at_])) rest.push_back(items_[at_]);
    }
    items_ = std::move(rest);
    at_ = 0;
    condition_ = nullptr;
    length_ = static_cast<std::int64_t>(items_.size()) + index0_ + 1 + (has_after_ ? 1 : 0);
  } else {
    length_ = static_cast<std::int64_t>(items_.size());
  }
  return length_;
}

bool Loop::attribute(const std::string& name, Value& value) {
  if (name == "index") {
    value = Value::integer(index0_ + 1);
  } else if (name == "index0") {
    value = Value::integer(index0_);
  } else if (name == "first") {
    value = Value::boolean(index0_ == 0);
  } else if (name == "last") {
    value = Value::boolean(!peek());
  } else if (name == "length") {
    value = Value::integer(length());
  } else if (name == "revindex") {
    value = Value::integer(length() - index0_);
  } else if (name == "revindex0") {
    value = Value::integer(length() - index0_ - 1);
  } else if (name == "previtem") {
    value = index0_ == 0 ? Value::undefined("there is no previous item") : before_;
  } else if (name == "nextitem") {
    value = peek() ? after_ : Value::undefined("there is no next item");
  } else if (name == "depth" || name == "depth0") {
    value = Value::integer(name == "depth" ? 1 : 0);
  } else if (name == "cycle") {
    value =
        function([index = static_cast<std::size_t>(index0_)](Budget&, const Arguments& arguments) {
          if (arguments.positional.empty()) fail("loop.cycle() needs a value");
          return arguments.positional[index % arguments.positional.size()];
        });
  } else {
    return false;
  }
  return true;
}

std::vector<std::pair<std::string, Value>> global_functions(const MakeNamespace& make,
                                                            std::time_t now) {
  std::vector<std::pair<std::string, Value>> names;
  names.emplace_back("range", function(range));
  names.emplace_back("dict", function([](Budget& budget, const Arguments& arguments) {
                       return Value::dict(dict_entries(budget, arguments));
                     }));
  names.emplace_back("namespace", function([make](Budget& budget, const Arguments& arguments) {
                       const std::shared_ptr<Namespace> made = make();
                       for (auto& [key, value] : dict_entries(budget, arguments)) {
                         if (!key.is_string()) fail("a namespace has names, not other keys");
                         made->set(key.text(), value, budget);
                       }
                       return Value::object(made);
                     }));
  names.emplace_back("joiner", function(joiner));
  names.emplace_back("cycler", function(cycler));
  names.emplace_back("raise_exception", function(raise));
  names.emplace_back("strftime_now", function([now](Budget& budget, const Arguments& arguments) {
                       const Bound bound("strftime_now", arguments, {"format"}, 1);
                       std::string text = format_time(bound.text(0), now);
                       budget.allocate(text.size());
                       return Value::string(std::move(text));
                     }));
  return names;
}

}  // namespace haul::tokenizers::jinja
