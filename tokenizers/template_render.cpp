#include "tokenizers/template_render.h"

#include <algorithm>

#include <fmt/format.h>

#include "tokenizers/template_filters.h"
#include "tokenizers/template_operators.h"
#include "tokenizers/template_tests.h"

namespace haul::tokenizers::jinja {
namespace {

class Macro : public Object {
 public:
  Macro(Renderer& renderer, const Statement& statement, ScopePtr scope)
      : renderer_(renderer), statement_(statement), scope_(std::move(scope)) {}
  std::string type() const override { return "Macro"; }
  bool callable() const override { return true; }
  bool attribute(const std::string& name, Value& value) override {
    if (name != "name") return false;
    value = Value::string(statement_.text);
    return true;
  }
  Value call(Budget&, const Arguments& arguments) override {
    return Value::string(renderer_.call_macro(statement_, scope_, arguments));
  }

 private:
  Renderer& renderer_;
  const Statement& statement_;
  ScopePtr scope_;
};

}  // namespace

Renderer::Renderer(Budget& budget, const Value& context, std::time_t now) : budget_(budget) {
  auto globals = std::make_shared<Scope>();
  globals->names = global_functions(
      [this] {
        budget_.allocate(sizeof(Namespace));
        namespaces_.push_back(std::make_unique<Namespace>());
        return std::shared_ptr<Namespace>(std::shared_ptr<void>(), namespaces_.back().get());
      },
      now);
  root_ = std::make_shared<Scope>();
  root_->parent = std::move(globals);
  for (const auto& [key, value] : context.entries()) bind(root_, key.text(), value);
}

Renderer::~Renderer() {
  // A scope holds macros that hold the scope.
  for (const ScopePtr& scope : kept_) scope->names.clear();
}

std::string Renderer::render(const Body& body) {
  std::string out;
  run(body, root_, out);
  return out;
}

ScopePtr Renderer::inner(const ScopePtr& scope) {
  auto made = std::make_shared<Scope>();
  made->parent = scope;
  return made;
}

void Renderer::bind(const ScopePtr& scope, const std::string& name, Value value) {
  for (auto& [other, old] : scope->names) {
    if (other == name) {
      old = std::move(value);
      return;
    }
  }
  budget_.step(scope->names.size() / 16);
  scope->names.emplace_back(name, std::move(value));
}

void Renderer::print(const Value& value, std::string& out) {
  if (value.is_string()) {
    budget_.allocate(value.text().size());
    out += value.text();
  } else {
    out += str(value, budget_);
  }
}

Renderer::Flow Renderer::run(const Body& body, const ScopePtr& scope, std::string& out) {
  const Budget::Level level(budget_);
  for (const auto& statement : body) {
    const Flow flow = run(*statement, scope, out);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Renderer::Flow Renderer::run(const Statement& statement, const ScopePtr& scope, std::string& out) {
  budget_.step();
  line_ = statement.line;
  switch (statement.action) {
    case Action::kText:
      budget_.allocate(statement.text.size());
      out += statement.text;
      break;
    case Action::kPrint:
      print(evaluate(*statement.expressions[0], scope), out);
      break;
    case Action::kIf:
      return run_if(statement, scope, out);
    case Action::kFor:
      return run_for(statement, scope, out);
    case Action::kSet:
      assign(*statement.targets[0], evaluate(*statement.expressions[0], scope), scope);
      break;
    case Action::kSetBlock:
      assign(*statement.targets[0], captured(statement, scope), scope);
      break;
    case Action::kMacro:
      bind(scope, statement.text, macro(statement, scope));
      break;
    case Action::kCallBlock:
      run_call_block(statement, scope, out);
      break;
    case Action::kFilter:
      print(captured(statement, scope), out);
      break;
    case Action::kWith:
      run_with(statement, scope, out);
      break;
    case Action::kScope:
      run(statement.bodies[0], inner(scope), out);
      break;
    case Action::kBreak:
      return Flow::kBreak;
    case Action::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Renderer::Flow Renderer::run_if(const Statement& statement, const ScopePtr& scope,
                                std::string& out) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
    if (truth(evaluate(*statement.expressions[i], scope))) {
      return run(statement.bodies[i], scope, out);
    }
  }
  const bool otherwise = statement.bodies.size() > statement.expressions.size();
  return otherwise ? run(statement.bodies.back(), scope, out) : Flow::kOn;
}

Renderer::Flow Renderer::run_for(const Statement& statement, const ScopePtr& scope,
                                 std::string& out) {
  List items = elements(evaluate(*statement.expressions[0], scope), budget_);
  Loop::Condition condition;
  if (statement.expressions.size() > 1) {
    condition = [this, &statement, scope](const Value& item) {
      const ScopePtr own = inner(scope);
      assign(*statement.targets[0], item, own);
      return truth(evaluate(*statement.expressions[1], own));
    };
  }
  const auto loop = std::make_shared<Loop>(std::move(items), std::move(condition));
  const Value object = Value::object(loop);
  bool any = false;  // an iteration that was left early does not count
  for (Value item; loop->next(item);) {
    budget_.step();
    const ScopePtr own = inner(scope);
    bind(own, "loop", object);
    assign(*statement.targets[0], item, own);
    const Flow flow = run(statement.bodies[0], own, out);
    if (flow == Flow::kBreak) break;
    any = any || flow == Flow::kOn;
  }
  if (!any && statement.bodies.size() > 1) return run(statement.bodies[1], inner(scope), out);
  return Flow::kOn;
}

void Renderer::run_with(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const ScopePtr own = inner(scope);
  for (std::size_t i = 0; i < statement.targets.size(); ++i) {
    assign(*statement.targets[i], evaluate(*statement.expressions[i], scope), own);
  }
  run(statement.bodies[0], own, out);
}

Value Renderer::captured(const Statement& statement, const ScopePtr& scope) {
  std::string text;
  run(statement.bodies[0], inner(scope), text);
  Value value = Value::string(std::move(text));
  if (statement.expressions.empty()) return value;
  const Value* outer = std::exchange(piped_, &value);
  Value result = evaluate(*statement.expressions[0], scope);
  piped_ = outer;
  return result;
}

Value Renderer::macro(const Statement& statement, const ScopePtr& scope) {
  budget_.allocate(sizeof(Macro) + sizeof(Scope));
  if (kept_.empty() || kept_.back() != scope) kept_.push_back(scope);
  return Value::object(std::make_shared<Macro>(*this, statement, scope));
}

void Renderer::run_call_block(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const Value caller = macro(statement, scope);
  print(call(*statement.expressions[0], scope, &caller), out);
}

std::string Renderer::call_macro(const Statement& macro, const ScopePtr& around,
                                 const Arguments& given) {
  const Budget::Level level(budget_);
  const ScopePtr own = inner(around);
  std::vector<std::pair<std::string, Value>> named = given.named;
  const auto take = [&](const std::string& name, Value& value) {
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& pair) { return pair.first == name; });
    if (found == named.end()) return false;
    value = std::move(found->second);
    named.erase(found);
    return true;
  };
  std::vector<const Parameter*> absent;
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    Value value;
    if (i < given.positional.size()) {
      value = given.positional[i];
    } else if (!take(parameter.name, value)) {
      if (parameter.otherwise) absent.push_back(&parameter);
      value = Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    }
    bind(own, parameter.name, std::move(value));
  }
  if (macro.takes_caller) {
    Value caller;
    if (!take("caller", caller)) caller = Value::undefined("no caller is defined");
    bind(own, "caller", std::move(caller));
  }
  if (macro.takes_named) {
    Pairs entries;
    for (auto& [name, value] : named) entries.emplace_back(Value::string(name), value);
    bind(own, "kwargs", Value::dict(std::move(entries)));
  } else if (!named.empty()) {
    fail(fmt::format("macro '{}' takes no argument '{}'", macro.text, named[0].first));
  }
  if (macro.takes_rest) {
    const std::size_t used = std::min(given.positional.size(), macro.parameters.size());
    bind(own, "varargs",
         Value::tuple(List(given.positional.begin() + static_cast<std::ptrdiff_t>(used),
                           given.positional.end())));
  } else if (given.positional.size() > macro.parameters.size()) {
    fail(fmt::format("macro '{}' takes at most {} arguments", macro.text, macro.parameters.size()));
  }
  for (const Parameter* parameter : absent) {
    bind(own, parameter->name, evaluate(*parameter->otherwise, own));
  }
  std::string out;
  run(macro.bodies[0], own, out);
  return out;
}

void Renderer::assign(const Expression& target, const Value& value, const ScopePtr& scope) {
  if (target.operation == Operation::kName) {
    bind(scope, target.name, value);
    return;
  }
  if (target.operation == Operation::kMember) {
    const Value object = evaluate(*target.operands[0], scope);
    auto* const space =
        object.is(Kind::kObject) ? dynamic_cast<Namespace*>(&object.as_object()) : nullptr;
    if (space == nullptr) {
      fail(fmt::format("'{}' is no namespace, so '{}' cannot be set on it",
                       target.operands[0]->name, target.name));
    }
    space->set(target.name, value, budget_);
    return;
  }
  const List items = elements(value, budget_);
  if (items.size() != target.operands.size()) {
    fail(fmt::format("{} values for {} names", items.size(), target.operands.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i], scope);
}

}  // namespace haul::tokenizers::jinja
