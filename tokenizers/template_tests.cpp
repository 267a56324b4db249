#include "tokenizers/template_tests.h"

#include <cmath>
#include <unordered_map>

#include "tokenizers/template_arguments.h"
#include "tokenizers/template_filters.h"
#include "tokenizers/template_operators.h"
#include "tokenizers/template_text.h"

namespace haul::tokenizers::jinja {
namespace {

void no_arguments(const Arguments& arguments) {
  const Bound none("the test", arguments, {});
}

template <Kind kind>
bool is_kind(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is(kind);
}

template <bool expected>
bool is_boolean(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is(Kind::kBool) && (value.as_integer() != 0) == expected;
}

bool is_defined(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return !value.is_undefined();
}

bool is_number(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is_number();
}

bool is_iterable(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return iterable(value);
}

bool is_sequence(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is_undefined() || value.is_string() || value.is_sequence() ||
         value.is(Kind::kDict) || value.is(Kind::kRange);
}

bool is_callable(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is_undefined() || (value.is(Kind::kObject) && value.as_object().callable());
}

bool is_escaped(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is_string() && value.safe();
}

template <int remainder>
bool has_parity(Budget& budget, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  const Value rest = arithmetic("%", value, Value::integer(2), budget);
  return equal(rest, Value::integer(remainder), budget);
}

bool divides(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return equal(arithmetic("%", value, bound[0], budget), Value::integer(0), budget);
}

template <bool (*wanted)(std::string_view)>
bool has_case(Budget& budget, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return wanted(str(value, budget));
}

bool is_same(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  if (value.kind() != bound[0].kind()) return false;
  if (value.is_number() || value.is(Kind::kNone) || value.is_string()) {
    return equal(value, bound[0], budget);
  }
  return value.shared() == bound[0].shared();
}

bool is_in(Budget& budget, const Value& value, const Arguments& arguments) {
  const Bound bound("in", arguments, {"seq"}, 1);
  return contains(bound[0], value, budget);
}

bool is_filter(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is_string() && find_filter(value.text()) != nullptr;
}

bool is_test(Budget&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is_string() && find_test(value.text()) != nullptr;
}

enum class Order { kEqual, kUnequal, kLess, kLessEqual, kGreater, kGreaterEqual };

template <Order order>
bool compares(Budget& budget, const Value& value, const Arguments& arguments) {
  static constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};
  const Bound bound("a comparison", arguments, {"other"}, 1);
  return compare(kSymbols[static_cast<int>(order)], value, bound[0], budget);
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> table = {
      {"odd", has_parity<1>},
      {"even", has_parity<0>},
      {"divisibleby", divides},
      {"defined", is_defined},
      {"undefined", is_kind<Kind::kUndefined>},
      {"filter", is_filter},
      {"test", is_test},
      {"none", is_kind<Kind::kNone>},
      {"boolean", is_kind<Kind::kBool>},
      {"false", is_boolean<false>},
      {"true", is_boolean<true>},
      {"integer", is_kind<Kind::kInt>},
      {"float", is_kind<Kind::kFloat>},
      {"lower", has_case<is_lower>},
      {"upper", has_case<is_upper>},
      {"string", is_kind<Kind::kString>},
      {"mapping", is_kind<Kind::kDict>},
      {"number", is_number},
      {"sequence", is_sequence},
      {"iterable", is_iterable},
      {"callable", is_callable},
      {"sameas", is_same},
      {"escaped", is_escaped},
      {"in", is_in},
      {"==", compares<Order::kEqual>},
      {"eq", compares<Order::kEqual>},
      {"equalto", compares<Order::kEqual>},
      {"!=", compares<Order::kUnequal>},
      {"ne", compares<Order::kUnequal>},
      {">", compares<Order::kGreater>},
      {"gt", compares<Order::kGreater>},
      {"greaterthan", compares<Order::kGreater>},
      {">=", compares<Order::kGreaterEqual>},
      {"ge", compares<Order::kGreaterEqual>},
      {"<", compares<Order::kLess>},
      {"lt", compares<Order::kLess>},
      {"lessthan", compares<Order::kLess>},
      {"<=", compares<Order::kLessEqual>},
      {"le", compares<Order::kLessEqual>},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace haul::tokenizers::jinja
