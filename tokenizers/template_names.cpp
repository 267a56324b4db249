#include "tokenizers/template_names.h"

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/template_filters.h"
#include "tokenizers/template_tests.h"

namespace haul::tokenizers::jinja {
namespace {

void check(const Expression& node, bool soft) {
  soft = soft || node.operation == Operation::kConditional;
  const bool filter = node.operation == Operation::kFilter;
  const bool test = node.operation == Operation::kTest;
  if (!soft && ((filter && find_filter(node.name) == nullptr) ||
                (test && find_test(node.name) == nullptr))) {
    throw Error(ErrorKind::kCorrupt, fmt::format("line {}: no {} is named '{}'", node.line,
                                                 filter ? "filter" : "test", node.name));
  }
  for (const auto& operand : node.operands) {
    if (operand) check(*operand, soft);
  }
  for (const auto& [name, value] : node.named) check(*value, soft);
  if (node.rest) check(*node.rest, soft);
  if (node.rest_named) check(*node.rest_named, soft);
}

void check(const Body& body, bool soft) {
  for (const auto& statement : body) {
    const bool condition = statement->action == Action::kIf;
    const bool inside =
        condition ||
        (soft && (statement->action == Action::kPrint || statement->action == Action::kSet));
    for (const auto& node : statement->expressions) check(*node, inside);
    for (const auto& parameter : statement->parameters) {
      if (parameter.otherwise) check(*parameter.otherwise, false);
    }
    for (const Body& inner : statement->bodies) check(inner, condition);
  }
}

}  // namespace

void check_names(const Body& body) {
  check(body, false);
}

}  // namespace haul::tokenizers::jinja
