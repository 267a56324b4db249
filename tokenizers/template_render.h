#pragma once

// Walks a parsed template. One renderer serves one render, on one thread.

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/template_objects.h"
#include "tokenizers/template_tree.h"

namespace haul::tokenizers::jinja {

// Names of a block, and the block around it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> names;
};
using ScopePtr = std::shared_ptr<Scope>;

class Renderer {
 public:
  // `budget` outlives the renderer; `context` is what the template sees by name.
  Renderer(Budget& budget, const Value& context, std::time_t now);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  std::string render(const Body& body);
  // Where the walk is; after a failure, where it failed.
  int line() const { return line_; }

  // The text of a macro's body.
  std::string call_macro(const Statement& macro, const ScopePtr& around,
                         const Arguments& arguments);

 private:
  enum class Flow { kOn, kBreak, kContinue };

  Flow run(const Body& body, const ScopePtr& scope, std::string& out);
  Flow run(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow run_if(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow run_for(const Statement& statement, const ScopePtr& scope, std::string& out);
  void run_with(const Statement& statement, const ScopePtr& scope, std::string& out);
  void run_call_block(const Statement& statement, const ScopePtr& scope, std::string& out);
  // The text of a body with names of its own, through a filter if there is one.
  Value captured(const Statement& statement, const ScopePtr& scope);

  Value evaluate(const Expression& node, const ScopePtr& scope);
  Value name(const Expression& node, const ScopePtr& scope);
  Value slice_of(const Expression& node, const ScopePtr& scope);
  Value call(const Expression& node, const ScopePtr& scope, const Value* caller);
  Value filtered(const Expression& node, const ScopePtr& scope);
  bool tested(const Expression& node, const ScopePtr& scope);
  bool compared(const Expression& node, const ScopePtr& scope);
  Value dict(const Expression& node, const ScopePtr& scope);
  Value concatenated(const Expression& node, const ScopePtr& scope);
  List values(const Expression& node, const ScopePtr& scope, std::size_t first);
  Arguments arguments(const Expression& node, const ScopePtr& scope);

  Value macro(const Statement& statement, const ScopePtr& scope);
  ScopePtr inner(const ScopePtr& scope);
  void assign(const Expression& target, const Value& value, const ScopePtr& scope);
  void bind(const ScopePtr& scope, const std::string& name, Value value);
  void print(const Value& value, std::string& out);

  Budget& budget_;
  ScopePtr root_;
  int line_ = 1;
  const Value* piped_ = nullptr;  // what a filter block's first filter applies to
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<ScopePtr> kept_;  // scopes that macros refer to, and that refer to macros
};

}  // namespace haul::tokenizers::jinja
