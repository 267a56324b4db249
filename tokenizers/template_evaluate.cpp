#include <fmt/format.h>

#include "tokenizers/template_filters.h"
#include "tokenizers/template_operators.h"
#include "tokenizers/template_render.h"
#include "tokenizers/template_tests.h"

namespace haul::tokenizers::jinja {
namespace {

// A new sequence takes its room out of the budget.
Value paid(Value value, Budget& budget) {
  const bool sequence = value.is_sequence() || value.is(Kind::kView) || value.is(Kind::kIterator);
  if (sequence) budget.allocate(value.items().size() * sizeof(Value));
  return value;
}

}  // namespace

Value Renderer::evaluate(const Expression& node, const ScopePtr& scope) {
  const Budget::Level level(budget_);
  budget_.step();
  line_ = node.line;
  const auto operand = [&](std::size_t i) { return evaluate(*node.operands[i], scope); };
  switch (node.operation) {
    case Operation::kConstant:
      return node.value;
    case Operation::kName:
      return name(node, scope);
    case Operation::kMember:
      return member(operand(0), node.name, budget_);
    case Operation::kItem: {
      const Value on = operand(0);
      return item(on, operand(1), budget_);
    }
    case Operation::kSlice:
      return slice_of(node, scope);
    case Operation::kCall:
      return call(node, scope, nullptr);
    case Operation::kFilter:
      return filtered(node, scope);
    case Operation::kTest:
      return Value::boolean(tested(node, scope));
    case Operation::kList:
      return Value::list(values(node, scope, 0));
    case Operation::kTuple:
      return Value::tuple(values(node, scope, 0));
    case Operation::kDict:
      return dict(node, scope);
    case Operation::kNegate:
      return negate(operand(0), true);
    case Operation::kPlus:
      return negate(operand(0), false);
    case Operation::kNot:
      return Value::boolean(!truth(operand(0)));
    case Operation::kAnd: {
      Value left = operand(0);
      return truth(left) ? operand(1) : left;
    }
    case Operation::kOr: {
      Value left = operand(0);
      return truth(left) ? left : operand(1);
    }
    case Operation::kConditional:
      if (truth(operand(0))) return operand(1);
      if (node.operands.size() > 2) return operand(2);
      return Value::undefined("an inline if was false and has no else");
    case Operation::kConcat:
      return concatenated(node, scope);
    case Operation::kCompare:
      return Value::boolean(compared(node, scope));
    case Operation::kArithmetic: {
      const Value left = operand(0);
      return arithmetic(node.name, left, operand(1), budget_);
    }
  }
  return {};
}

Value Renderer::name(const Expression& node, const ScopePtr& scope) {
  for (const Scope* at = scope.get(); at != nullptr; at = at->parent.get()) {
    for (const auto& [other, value] : at->names) {
      if (other == node.name) return value;
    }
  }
  return Value::undefined(fmt::format("'{}' is undefined", node.name));
}

Value Renderer::slice_of(const Expression& node, const ScopePtr& scope) {
  const Value on = evaluate(*node.operands[0], scope);
  Value bounds[3];
  const Value* given[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!node.operands[i + 1]) continue;
    bounds[i] = evaluate(*node.operands[i + 1], scope);
    given[i] = &bounds[i];
  }
  return slice(on, given[0], given[1], given[2], budget_);
}

Value Renderer::call(const Expression& node, const ScopePtr& scope, const Value* caller) {
  const Value callee = evaluate(*node.operands[0], scope);
  Arguments given = arguments(node, scope);
  if (caller != nullptr) given.named.emplace_back("caller", *caller);
  line_ = node.line;
  require_defined(callee);
  if (!callee.is(Kind::kObject)) {
    fail(fmt::format("'{}' object is not callable", type_name(callee)));
  }
  return paid(callee.as_object().call(budget_, given), budget_);
}

Value Renderer::filtered(const Expression& node, const ScopePtr& scope) {
  const Filter filter = find_filter(node.name);
  if (filter == nullptr) fail(fmt::format("no filter is named '{}'", node.name));
  const Value on = node.operands[0] ? evaluate(*node.operands[0], scope) : *piped_;
  const Arguments given = arguments(node, scope);
  line_ = node.line;
  return paid(filter(budget_, on, given), budget_);
}

bool Renderer::tested(const Expression& node, const ScopePtr& scope) {
  const Test test = find_test(node.name);
  if (test == nullptr) fail(fmt::format("no test is named '{}'", node.name));
  const Value on = evaluate(*node.operands[0], scope);
  return test(budget_, on, arguments(node, scope));
}

bool Renderer::compared(const Expression& node, const ScopePtr& scope) {
  Value left = evaluate(*node.operands[0], scope);
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.operands[i + 1], scope);
    if (!compare(node.names[i], left, right, budget_)) return false;
    left = std::move(right);
  }
  return true;
}

Value Renderer::dict(const Expression& node, const ScopePtr& scope) {
  Pairs entries;
  for (std::size_t i = 0; i + 1 < node.operands.size(); i += 2) {
    Value key = evaluate(*node.operands[i], scope);
    put(entries, std::move(key), evaluate(*node.operands[i + 1], scope), budget_);
  }
  return Value::dict(std::move(entries));
}

Value Renderer::concatenated(const Expression& node, const ScopePtr& scope) {
  std::string text;
  for (const auto& operand : node.operands) print(evaluate(*operand, scope), text);
  return Value::string(std::move(text));
}

List Renderer::values(const Expression& node, const ScopePtr& scope, std::size_t first) {
  List result;
  budget_.allocate(node.operands.size() * sizeof(Value));
  for (std::size_t i = first; i < node.operands.size(); ++i) {
    result.push_back(evaluate(*node.operands[i], scope));
  }
  return result;
}

Arguments Renderer::arguments(const Expression& node, const ScopePtr& scope) {
  Arguments given;
  given.positional = values(node, scope, 1);
  if (node.rest) {
    const List rest = elements(evaluate(*node.rest, scope), budget_);
    given.positional.insert(given.positional.end(), rest.begin(), rest.end());
  }
  for (const auto& [key, value] : node.named)
    given.named.emplace_back(key, evaluate(*value, scope));
  if (!node.rest_named) return given;
  const Value rest = evaluate(*node.rest_named, scope);
  if (!rest.is(Kind::kDict)) fail("** needs a dict");
  for (const auto& [key, value] : rest.entries()) {
    if (!key.is_string()) fail("** needs names for keys");
    for (const auto& [other, old] : given.named) {
      if (other == key.text()) fail(fmt::format("argument '{}' twice", other));
    }
    given.named.emplace_back(key.text(), value);
  }
  return given;
}

}  // namespace haul::tokenizers::jinja
