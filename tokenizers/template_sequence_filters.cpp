#include <algorithm>
#include <charconv>
#include <memory>

#include <fmt/format.h>

#include "tokenizers/template_arguments.h"
#include "tokenizers/template_filters.h"
#include "tokenizers/template_operators.h"
#include "tokenizers/template_tests.h"
#include "tokenizers/template_text.h"

namespace haul::tokenizers::jinja {
namespace {

// Follows "a.b.0" from an element.
Value follow(Value value, const Value& path, Budget& budget, const Value* otherwise = nullptr) {
  if (path.is(Kind::kNone)) return value;
  if (!path.is_string()) {
    value = item(value, path, budget);
    return otherwise != nullptr && value.is_undefined() ? *otherwise : value;
  }
  for (const std::string_view part : split(path.text(), ".", -1, false)) {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool digits =
        parsed.ec == std::errc{} && parsed.ptr == part.data() + part.size() && part[0] != '-';
    value = item(value, digits ? Value::integer(number) : Value::string(std::string(part)), budget);
    if (otherwise != nullptr && value.is_undefined()) value = *otherwise;
  }
  return value;
}

Value folded(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value::string(lower(value.text())) : value;
}

// Elements beside what they are ordered by.
struct Keyed {
  Value key;
  Value value;
};

void sort_keyed(std::vector<Keyed>& rows, bool reverse, Budget& budget) {
  // A reversed sort keeps the order of equal elements too.
  if (reverse) std::reverse(rows.begin(), rows.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Keyed& a, const Keyed& b) { return less(a.key, b.key, budget); });
  if (reverse) std::reverse(rows.begin(), rows.end());
}

List values_of(std::vector<Keyed>&& rows) {
  List values;
  values.reserve(rows.size());
  for (Keyed& row : rows) values.push_back(std::move(row.value));
  return values;
}

Value sorted(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> rows;
  for (const Value& element : elements(value, budget)) {
    List keys;
    if (bound.has(2) && bound[2].is_string()) {
      for (const std::string_view path : split(bound[2].text(), ",", -1, false)) {
        keys.push_back(
            folded(follow(element, Value::string(std::string(path)), budget), bound.flag(1)));
      }
    } else {
      keys.push_back(
          folded(follow(element, bound.has(2) ? bound[2] : Value::none(), budget), bound.flag(1)));
    }
    rows.push_back({Value::list(std::move(keys)), element});
  }
  sort_keyed(rows, bound.flag(0), budget);
  return Value::list(values_of(std::move(rows)));
}

Value dictsorted(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  require_defined(value);
  if (!value.is(Kind::kDict))
    fail(fmt::format("dictsort needs a dict, not '{}'", type_name(value)));
  const std::string by = bound.has(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") fail("dictsort sorts by key or by value");
  std::vector<Keyed> rows;
  budget.allocate(value.entries().size() * 6 * sizeof(Value));
  for (const auto& [key, entry] : value.entries()) {
    rows.push_back({folded(by == "key" ? key : entry, bound.flag(0)), Value::tuple({key, entry})});
  }
  sort_keyed(rows, bound.flag(2), budget);
  return Value::list(values_of(std::move(rows)));
}

Value unique(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Pairs seen;
  List kept;
  for (const Value& element : elements(value, budget)) {
    Value key =
        folded(follow(element, bound.has(1) ? bound[1] : Value::none(), budget), bound.flag(0));
    if (!hashable(key)) fail(fmt::format("unhashable type: '{}'", type_name(key)));
    if (find(seen, key, budget) != nullptr) continue;
    put(seen, std::move(key), Value::none(), budget);
    kept.push_back(element);
  }
  return Value::iterator(std::move(kept));
}

template <bool largest>
Value extreme(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("min and max", arguments, {"case_sensitive", "attribute"});
  const List items = elements(value, budget);
  if (items.empty()) return Value::undefined("there is no smallest or largest of nothing");
  const auto key = [&](const Value& element) {
    return folded(follow(element, bound.has(1) ? bound[1] : Value::none(), budget), bound.flag(0));
  };
  const Value* best = &items[0];
  Value best_key = key(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value other = key(items[i]);
    if (largest ? less(best_key, other, budget) : less(other, best_key, budget)) {
      best = &items[i];
      best_key = std::move(other);
    }
  }
  return *best;
}

Value summed(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Value total = bound.has(1) ? bound[1] : Value::integer(0);
  if (total.is_string()) fail("sum does not add strings");
  for (const Value& element : elements(value, budget)) {
    total = arithmetic("+", total, follow(element, bound.has(0) ? bound[0] : Value::none(), budget),
                       budget);
  }
  return total;
}

Value joined(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.has(0) ? str(bound[0], budget) : "";
  std::string out;
  bool first = true;
  for (const Value& element : elements(value, budget)) {
    budget.step();
    if (!first) {
      budget.allocate(separator.size());
      out += separator;
    }
    first = false;
    out += str(bound.some(1) ? follow(element, bound[1], budget) : element, budget);
  }
  return Value::string(std::move(out));
}

Value first_of(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("first", arguments, {});
  if (value.is(Kind::kIterator)) {
    ListCell& cell = value.walk();
    return cell.next < cell.items.size() ? cell.items[cell.next++]
                                         : Value::undefined("no first item");
  }
  const List items = elements(value, budget);
  return items.empty() ? Value::undefined("no first item, the sequence is empty") : items.front();
}

Value last_of(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("last", arguments, {});
  if (value.is(Kind::kIterator)) fail("an iterator cannot be walked from its end");
  const List items = elements(value, budget);
  return items.empty() ? Value::undefined("no last item, the sequence is empty") : items.back();
}

Value as_list(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("list", arguments, {});
  return Value::list(elements(value, budget));
}

Value reversed(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("reverse", arguments, {});
  List items = elements(value, budget);
  std::reverse(items.begin(), items.end());
  if (value.is_string()) {
    std::string out;
    for (const Value& character : items) out += character.text();
    return Value::string(std::move(out), value.safe());
  }
  return value.is(Kind::kIterator) ? Value::list(std::move(items))
                                   : Value::iterator(std::move(items));
}

Value items_of(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound none("items", arguments, {});
  if (value.is_undefined()) return Value::iterator({});
  if (!value.is(Kind::kDict)) fail("items needs a dict");
  budget.allocate(value.entries().size() * 4 * sizeof(Value));
  List items;
  for (const auto& [key, entry] : value.entries()) items.push_back(Value::tuple({key, entry}));
  return Value::iterator(std::move(items));
}

Value mapped(Budget& budget, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return Value::iterator({});
  List results;
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    for (const Value& element : elements(value, budget)) {
      results.push_back(follow(element, bound[0], budget, bound.some(1) ? &bound[1] : nullptr));
    }
    return Value::iterator(std::move(results));
  }
  const Value& name = arguments.positional[0];
  const Filter filter = name.is_string() ? find_filter(name.text()) : nullptr;
  if (filter == nullptr)
    fail(fmt::format("no filter is named {}", repr(name, budget).substr(0, 80)));
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  const Budget::Level level(budget);
  for (const Value& element : elements(value, budget)) {
    budget.step();
    results.push_back(filter(budget, element, rest));
  }
  return Value::iterator(std::move(results));
}

template <bool wanted, bool by_attribute>
Value selected(Budget& budget, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return Value::iterator({});
  Arguments rest = arguments;
  Value path = Value::none();
  if (by_attribute) {
    if (rest.positional.empty()) fail("selectattr and rejectattr need an attribute");
    path = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  Test test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = rest.positional[0];
    test = name.is_string() ? find_test(name.text()) : nullptr;
    if (test == nullptr) fail(fmt::format("no test is named {}", repr(name, budget).substr(0, 80)));
    rest.positional.erase(rest.positional.begin());
  }
  List kept;
  for (const Value& element : elements(value, budget)) {
    budget.step();
    const Value looked_at = follow(element, path, budget);
    const bool passes = test != nullptr ? test(budget, looked_at, rest) : truth(looked_at);
    if (passes == wanted) kept.push_back(element);
  }
  return Value::iterator(std::move(kept));
}

Value batched(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const auto size = static_cast<std::size_t>(std::clamp<std::int64_t>(
      bound.integer(0, 0), 0, static_cast<std::int64_t>(Budget::kLongestRange)));
  List batches;
  List batch;
  for (const Value& element : elements(value, budget)) {
    if (batch.size() == size) {
      batches.push_back(Value::list(std::move(batch)));
      batch.clear();
    }
    batch.push_back(element);
  }
  if (!batch.empty()) {
    if (bound.some(1) && batch.size() < size) {
      budget.allocate(size * sizeof(Value));
      batch.resize(size, bound[1]);
    }
    batches.push_back(Value::list(std::move(batch)));
  }
  return Value::iterator(std::move(batches));
}

Value sliced(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t count = bound.integer(0, 0);
  if (count == 0) fail("division by zero");
  const List items = elements(value, budget);
  List slices;
  if (count < 0) return Value::iterator({});
  budget.step(static_cast<std::size_t>(count));
  budget.allocate(static_cast<std::size_t>(count) * 2 * sizeof(Value));
  const auto parts = static_cast<std::size_t>(count);
  const std::size_t longer = items.size() % parts;
  std::size_t at = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t size = items.size() / parts + (i < longer ? 1 : 0);
    List part(items.begin() + static_cast<std::ptrdiff_t>(at),
              items.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
    if (bound.some(1) && i >= longer) part.push_back(bound[1]);
    slices.push_back(Value::list(std::move(part)));
  }
  return Value::iterator(std::move(slices));
}

Value grouped(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const Value* otherwise = bound.some(1) ? &bound[1] : nullptr;
  std::vector<Keyed> rows;
  for (const Value& element : elements(value, budget)) {
    rows.push_back({folded(follow(element, bound[0], budget, otherwise), bound.flag(2)), element});
  }
  sort_keyed(rows, false, budget);
  List groups;
  for (std::size_t i = 0; i < rows.size();) {
    List members;
    const std::size_t begin = i;
    while (i < rows.size() && equal(rows[i].key, rows[begin].key, budget))
      members.push_back(rows[i++].value);
    if (i == begin)
      members.push_back(rows[i++].value);  // a key that equals nothing, not even itself
    Value key = follow(members[0], bound[0], budget, otherwise);
    groups.push_back(Value::tuple({std::move(key), Value::list(std::move(members))}));
  }
  return Value::list(std::move(groups));
}

}  // namespace

const std::vector<NamedFilter>& sequence_filters() {
  static const std::vector<NamedFilter> filters = {
      {"batch", batched},
      {"dictsort", dictsorted},
      {"first", first_of},
      {"groupby", grouped},
      {"items", items_of},
      {"join", joined},
      {"last", last_of},
      {"list", as_list},
      {"map", mapped},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", selected<false, false>},
      {"rejectattr", selected<false, true>},
      {"reverse", reversed},
      {"select", selected<true, false>},
      {"selectattr", selected<true, true>},
      {"slice", sliced},
      {"sort", sorted},
      {"sum", summed},
      {"unique", unique},
  };
  return filters;
}

}  // namespace haul::tokenizers::jinja
