#pragma once

// Expressions of templates out of their tokens; statements are in template_parser.cpp.

#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/template_lexer.h"
#include "tokenizers/template_tree.h"

namespace haul::tokenizers::jinja {

// Reads tokens from left to right. Failure is an Error that begins with the line.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  static constexpr int kDeepest = 200;

  const Token& peek(std::size_t ahead = 0) const;
  const Token& next();
  bool at(TokenKind kind) const { return peek().kind == kind; }
  bool at_symbol(std::string_view symbol) const;
  bool at_name(std::string_view name) const;
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  void expect(TokenKind kind, const char* what);
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_token() const;

  // An expression, or a tuple where commas follow.
  ExpressionPtr tuple(bool conditional = true, bool parentheses = false,
                      std::string_view stop = {});
  ExpressionPtr expression(bool conditional = true);
  // What can be assigned to: a name, a namespace's member where allowed, a tuple of them.
  ExpressionPtr target(bool members, std::string_view stop = {});
  // | name(…) | name(…); `bare` when the first has no bar before it.
  ExpressionPtr filters(ExpressionPtr on, bool bare);

  // Names that were read since the last clear: those that a macro may take.
  struct Mentions {
    bool rest = false, named = false, caller = false;
  };
  Mentions mentions_;
  int nesting_ = 0;

 private:
  using Draft = std::unique_ptr<Expression>;
  Draft draft(Operation operation) const;
  // Adds up the depth, refuses too much of it.
  ExpressionPtr done(Draft draft) const;
  ExpressionPtr binary(Operation operation, std::string name, ExpressionPtr a, ExpressionPtr b,
                       int line) const;

  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr test(ExpressionPtr node);
  ExpressionPtr call(ExpressionPtr node);
  ExpressionPtr simple_target(bool members);
  void arguments(Expression& node);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace haul::tokenizers::jinja
