#include <algorithm>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/template_parser.h"

namespace haul::tokenizers::jinja {
namespace {

struct Nesting {
  explicit Nesting(int& count) : level(count) { ++level; }
  ~Nesting() { --level; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  int& level;
};

bool is_constant_name(const std::string& name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

const Token& ExpressionParser::peek(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const Token& ExpressionParser::next() {
  const Token& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::at_symbol(std::string_view symbol) const {
  return at(TokenKind::kOperator) && peek().text == symbol;
}

bool ExpressionParser::at_name(std::string_view name) const {
  return at(TokenKind::kName) && peek().text == name;
}

bool ExpressionParser::skip_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

void ExpressionParser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) refuse(fmt::format("expected '{}'", symbol));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) refuse(fmt::format("expected '{}'", name));
}

std::string ExpressionParser::expect_any_name() {
  if (!at(TokenKind::kName)) refuse("expected a name");
  return next().text;
}

void ExpressionParser::expect(TokenKind kind, const char* what) {
  if (!at(kind)) refuse(fmt::format("expected {}", what));
  next();
}

void ExpressionParser::refuse(const std::string& what) const {
  const Token& token = peek();
  const char* found = "";
  switch (token.kind) {
    case TokenKind::kBlockEnd:
      found = "the end of the tag";
      break;
    case TokenKind::kPrintEnd:
      found = "the end of the expression";
      break;
    case TokenKind::kEnd:
      found = "the end of the template";
      break;
    default:
      break;
  }
  throw Error(ErrorKind::kCorrupt,
              fmt::format("line {}: {}, found {}", token.line, what,
                          *found != '\0' ? found : fmt::format("'{}'", token.text.substr(0, 40))));
}

void ExpressionParser::refuse_token() const {
  refuse("expected an expression");
}

ExpressionParser::Draft ExpressionParser::draft(Operation operation) const {
  auto node = std::make_unique<Expression>();
  node->operation = operation;
  node->line = peek().line;
  return node;
}

ExpressionPtr ExpressionParser::done(Draft node) const {
  int below = 0;
  const auto look = [&](const ExpressionPtr& child) {
    if (child) below = std::max(below, child->depth);
  };
  for (const auto& child : node->operands) look(child);
  for (const auto& [name, child] : node->named) look(child);
  look(node->rest);
  look(node->rest_named);
  if (below >= kDeepest) refuse("an expression is nested too deeply");
  node->depth = below + 1;
  return node;
}

ExpressionPtr ExpressionParser::binary(Operation operation, std::string name, ExpressionPtr a,
                                       ExpressionPtr b, int line) const {
  Draft node = draft(operation);
  node->line = line;
  node->name = std::move(name);
  node->operands.push_back(std::move(a));
  node->operands.push_back(std::move(b));
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, bool parentheses,
                                      std::string_view stop) {
  Draft node = draft(Operation::kTuple);
  bool is_tuple = false;
  for (;;) {
    if (!node->operands.empty()) expect_symbol(",");
    if (at(TokenKind::kPrintEnd) || at(TokenKind::kBlockEnd) || at_symbol(")") ||
        (!stop.empty() && at_name(stop))) {
      break;
    }
    node->operands.push_back(expression(with_condition));
    if (!at_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !node->operands.empty()) return std::move(node->operands[0]);
  if (!is_tuple && !parentheses) refuse_token();
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const Nesting nesting(nesting_);
  if (nesting_ > kDeepest / 2) refuse("an expression is nested too deeply");
  return with_condition ? conditional() : disjunction();
}

ExpressionPtr ExpressionParser::conditional() {
  const int line = peek().line;
  ExpressionPtr node = disjunction();
  while (skip_name("if")) {
    Draft choice = draft(Operation::kConditional);
    choice->line = line;
    choice->operands.push_back(disjunction());
    choice->operands.push_back(std::move(node));
    if (skip_name("else")) choice->operands.push_back(expression());
    node = done(std::move(choice));
  }
  return node;
}

ExpressionPtr ExpressionParser::disjunction() {
  const int line = peek().line;
  ExpressionPtr node = conjunction();
  while (skip_name("or")) node = binary(Operation::kOr, {}, std::move(node), conjunction(), line);
  return node;
}

ExpressionPtr ExpressionParser::conjunction() {
  const int line = peek().line;
  ExpressionPtr node = negation();
  while (skip_name("and")) node = binary(Operation::kAnd, {}, std::move(node), negation(), line);
  return node;
}

ExpressionPtr ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  const Nesting nesting(nesting_);
  if (nesting_ > kDeepest / 2) refuse("an expression is nested too deeply");
  Draft node = draft(Operation::kNot);
  next();
  node->operands.push_back(negation());
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::comparison() {
  Draft node = draft(Operation::kCompare);
  node->operands.push_back(sum());
  for (;;) {
    static constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};
    const bool symbol =
        at(TokenKind::kOperator) &&
        std::find(std::begin(kSymbols), std::end(kSymbols), peek().text) != std::end(kSymbols);
    if (symbol || at_name("in")) {
      node->names.push_back(next().text);
    } else if (at_name("not") && peek(1).kind == TokenKind::kName && peek(1).text == "in") {
      next();
      next();
      node->names.emplace_back("not in");
    } else {
      break;
    }
    node->operands.push_back(sum());
  }
  if (node->names.empty()) return std::move(node->operands[0]);
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::sum() {
  const int line = peek().line;
  ExpressionPtr node = concatenation();
  while (at_symbol("+") || at_symbol("-")) {
    std::string name = next().text;
    node = binary(Operation::kArithmetic, std::move(name), std::move(node), concatenation(), line);
  }
  return node;
}

ExpressionPtr ExpressionParser::concatenation() {
  Draft node = draft(Operation::kConcat);
  node->operands.push_back(product());
  while (skip_symbol("~")) node->operands.push_back(product());
  if (node->operands.size() == 1) return std::move(node->operands[0]);
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::product() {
  const int line = peek().line;
  ExpressionPtr node = power();
  while (at_symbol("*") || at_symbol("/") || at_symbol("//") || at_symbol("%")) {
    std::string name = next().text;
    node = binary(Operation::kArithmetic, std::move(name), std::move(node), power(), line);
  }
  return node;
}

ExpressionPtr ExpressionParser::power() {
  const int line = peek().line;
  ExpressionPtr node = unary(true);
  while (skip_symbol("**")) {
    node = binary(Operation::kArithmetic, "**", std::move(node), unary(true), line);
  }
  return node;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr node;
  if (at_symbol("-") || at_symbol("+")) {
    const Nesting nesting(nesting_);
    if (nesting_ > kDeepest / 2) refuse("an expression is nested too deeply");
    Draft sign = draft(at_symbol("-") ? Operation::kNegate : Operation::kPlus);
    next();
    sign->operands.push_back(unary(false));
    node = done(std::move(sign));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  while (with_filters) {
    if (at_symbol("|")) {
      node = filters(std::move(node), false);
    } else if (at_name("is")) {
      node = test(std::move(node));
    } else if (at_symbol("(")) {
      node = call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = peek();
  Draft node = draft(Operation::kConstant);
  if (token.kind == TokenKind::kName) {
    next();
    if (is_constant_name(token.text)) {
      const char first = token.text[0];
      node->value = first == 'n' || first == 'N' ? Value::none()
                                                 : Value::boolean(first == 't' || first == 'T');
      return node;
    }
    mentions_.rest = mentions_.rest || token.text == "varargs";
    mentions_.named = mentions_.named || token.text == "kwargs";
    mentions_.caller = mentions_.caller || token.text == "caller";
    node->operation = Operation::kName;
    node->name = token.text;
    return node;
  }
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (at(TokenKind::kString)) text += next().text;
    node->value = Value::string(std::move(text));
    return node;
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) {
    next();
    node->value =
        token.kind == TokenKind::kInteger ? Value::integer(token.integer) : Value::real(token.real);
    return node;
  }
  if (skip_symbol("(")) {
    ExpressionPtr inner = tuple(true, true);
    expect_symbol(")");
    return inner;
  }
  const bool list = at_symbol("[");
  if (!list && !at_symbol("{")) refuse_token();
  next();
  const std::string_view end = list ? "]" : "}";
  node->operation = list ? Operation::kList : Operation::kDict;
  while (!at_symbol(end)) {
    if (!node->operands.empty()) expect_symbol(",");
    if (at_symbol(end)) break;
    node->operands.push_back(expression());
    if (list) continue;
    expect_symbol(":");
    node->operands.push_back(expression());
  }
  expect_symbol(end);
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr node) {
  for (;;) {
    if (at_symbol(".") || at_symbol("[")) {
      node = subscript(std::move(node));
    } else if (at_symbol("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr on) {
  Draft node = draft(Operation::kItem);
  node->operands.push_back(std::move(on));
  if (skip_symbol(".")) {
    const Token& token = next();
    if (token.kind == TokenKind::kName) {
      node->operation = Operation::kMember;
      node->name = token.text;
    } else if (token.kind == TokenKind::kInteger) {
      Draft index = draft(Operation::kConstant);
      index->value = Value::integer(token.integer);
      node->operands.push_back(std::move(index));
    } else {
      refuse("expected a name or a number after '.'");
    }
    return done(std::move(node));
  }
  expect_symbol("[");
  const auto ends = [&] { return at_symbol("]") || at_symbol(",") || at_symbol(":"); };
  node->operands.push_back(at_symbol(":") ? nullptr : expression());
  if (skip_symbol(":")) {
    node->operation = Operation::kSlice;
    node->operands.push_back(ends() ? nullptr : expression());
    node->operands.push_back(skip_symbol(":") && !ends() ? expression() : nullptr);
  } else if (at_symbol(",")) {
    Draft key = draft(Operation::kTuple);
    key->operands.push_back(std::move(node->operands[1]));
    while (skip_symbol(",")) key->operands.push_back(expression());
    node->operands[1] = done(std::move(key));
  }
  expect_symbol("]");
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::call(ExpressionPtr on) {
  Draft node = draft(Operation::kCall);
  node->operands.push_back(std::move(on));
  arguments(*node);
  return done(std::move(node));
}

void ExpressionParser::arguments(Expression& node) {
  expect_symbol("(");
  bool first = true;
  while (!at_symbol(")")) {
    if (!first) expect_symbol(",");
    if (!first && at_symbol(")")) break;
    first = false;
    const auto ensure = [&](bool ok) {
      if (!ok) refuse("arguments in a wrong order");
    };
    if (skip_symbol("*")) {
      ensure(!node.rest && !node.rest_named);
      node.rest = expression();
    } else if (skip_symbol("**")) {
      ensure(!node.rest_named);
      node.rest_named = expression();
    } else if (at(TokenKind::kName) && peek(1).kind == TokenKind::kOperator &&
               peek(1).text == "=") {
      ensure(!node.rest_named);
      std::string name = next().text;
      next();
      for (const auto& [other, value] : node.named) {
        if (other == name) refuse(fmt::format("argument '{}' twice", name));
      }
      ExpressionPtr value = expression();
      node.named.emplace_back(std::move(name), std::move(value));
    } else {
      ensure(!node.rest && !node.rest_named && node.named.empty());
      node.operands.push_back(expression());
    }
  }
  expect_symbol(")");
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr on, bool bare) {
  while (bare || at_symbol("|")) {
    if (!bare) next();
    bare = false;
    Draft node = draft(Operation::kFilter);
    node->name = expect_any_name();
    while (skip_symbol(".")) node->name += "." + expect_any_name();
    node->operands.push_back(std::move(on));
    if (at_symbol("(")) arguments(*node);
    on = done(std::move(node));
  }
  return on;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr on) {
  Draft node = draft(Operation::kTest);
  expect_name("is");
  const bool negated = skip_name("not");
  node->name = expect_any_name();
  while (skip_symbol(".")) node->name += "." + expect_any_name();
  node->operands.push_back(std::move(on));
  const TokenKind kind = peek().kind;
  if (at_symbol("(")) {
    arguments(*node);
  } else if ((kind == TokenKind::kName || kind == TokenKind::kString ||
              kind == TokenKind::kInteger || kind == TokenKind::kFloat || at_symbol("[") ||
              at_symbol("{")) &&
             !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) refuse("tests cannot be chained");
    node->operands.push_back(postfix(primary()));
  }
  ExpressionPtr result = done(std::move(node));
  if (!negated) return result;
  Draft negation = draft(Operation::kNot);
  negation->operands.push_back(std::move(result));
  return done(std::move(negation));
}

ExpressionPtr ExpressionParser::simple_target(bool members) {
  if (skip_symbol("(")) {
    const Nesting nesting(nesting_);
    if (nesting_ > kDeepest / 2) refuse("an expression is nested too deeply");
    ExpressionPtr inner = target(members);
    expect_symbol(")");
    return inner;
  }
  Draft node = draft(Operation::kName);
  node->name = expect_any_name();
  if (is_constant_name(node->name)) refuse(fmt::format("cannot assign to '{}'", node->name));
  if (members && skip_symbol(".")) {
    Draft member = draft(Operation::kMember);
    member->name = expect_any_name();
    member->operands.push_back(std::move(node));
    return done(std::move(member));
  }
  return node;
}

ExpressionPtr ExpressionParser::target(bool members, std::string_view stop) {
  Draft node = draft(Operation::kTuple);
  bool is_tuple = false;
  for (;;) {
    if (at(TokenKind::kBlockEnd) || at_symbol(")") || (!stop.empty() && at_name(stop))) break;
    node->operands.push_back(simple_target(members));
    if (!skip_symbol(",")) break;
    is_tuple = true;
  }
  if (node->operands.empty()) refuse("expected a name to assign to");
  if (!is_tuple) return std::move(node->operands[0]);
  return done(std::move(node));
}

}  // namespace haul::tokenizers::jinja
