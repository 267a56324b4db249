#include "tokenizers/template_parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "haul/error.h"
#include "tokenizers/template_names.h"

namespace haul::tokenizers::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body whole() { return body({}); }

 private:
  using Draft = std::unique_ptr<Statement>;
  using Ends = std::initializer_list<std::string_view>;

  Draft draft(Action action) const {
    auto node = std::make_unique<Statement>();
    node->action = action;
    node->line = peek().line;
    return node;
  }

  // Statements up to a tag that is one of `ends`, which is left as the next token; up to the end
  // of the template when there are none.
  Body body(Ends ends) {
    if (++nesting_ > kDeepest / 2) refuse("blocks are nested too deeply");
    Body result;
    for (;;) {
      if (at(TokenKind::kData)) {
        Draft node = draft(Action::kText);
        node->text = next().text;
        result.push_back(std::move(node));
      } else if (at(TokenKind::kPrintBegin)) {
        next();
        Draft node = draft(Action::kPrint);
        node->expressions.push_back(tuple());
        expect(TokenKind::kPrintEnd, "the end of the expression");
        result.push_back(std::move(node));
      } else if (at(TokenKind::kBlockBegin)) {
        next();
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return at_name(end); })) break;
        statement(result);
        expect(TokenKind::kBlockEnd, "the end of the tag");
      } else {
        if (ends.size() == 0) break;
        refuse(fmt::format("expected a tag '{}'", *(ends.end() - 1)));
      }
    }
    --nesting_;
    return result;
  }

  // The rest of a tag that opens a block, and the block.
  Body block(Ends ends) {
    skip_symbol(":");
    expect(TokenKind::kBlockEnd, "the end of the tag");
    return body(ends);
  }

  Body closed_block(std::string_view end) {
    Body result = block({end});
    next();
    return result;
  }

  void statement(Body& out) {
    if (!at(TokenKind::kName)) refuse("expected the name of a tag");
    const std::string tag = peek().text;
    if (tag == "for") {
      out.push_back(loop());
    } else if (tag == "if") {
      out.push_back(choice());
    } else if (tag == "set") {
      out.push_back(assignment());
    } else if (tag == "macro") {
      out.push_back(macro());
    } else if (tag == "call") {
      out.push_back(call_block());
    } else if (tag == "filter") {
      out.push_back(filter_block());
    } else if (tag == "with") {
      out.push_back(with_block());
    } else if (tag == "generation") {
      Draft node = draft(Action::kScope);
      next();
      node->bodies.push_back(own_loops("endgeneration"));
      out.push_back(std::move(node));
    } else if (tag == "print") {
      print(out);
    } else if (tag == "break" || tag == "continue") {
      if (loops_ == 0) refuse(fmt::format("'{}' outside of a loop", tag));
      out.push_back(draft(tag == "break" ? Action::kBreak : Action::kContinue));
      next();
    } else {
      static constexpr std::string_view kOthers[] = {"block",  "extends", "include",
                                                     "import", "from",    "autoescape"};
      const bool known =
          std::find(std::begin(kOthers), std::end(kOthers), tag) != std::end(kOthers);
      throw Error(known ? ErrorKind::kUnsupported : ErrorKind::kCorrupt,
                  fmt::format("line {}: {} tag '{}'", peek().line,
                              known ? "a chat template has no use for the" : "unknown", tag));
    }
  }

  void print(Body& out) {
    next();
    bool first = true;
    while (!at(TokenKind::kBlockEnd)) {
      if (!first) expect_symbol(",");
      first = false;
      Draft node = draft(Action::kPrint);
      node->expressions.push_back(expression());
      out.push_back(std::move(node));
    }
  }

  Draft loop() {
    Draft node = draft(Action::kFor);
    next();
    node->targets.push_back(target(false, "in"));
    expect_name("in");
    node->expressions.push_back(tuple(false, false, "recursive"));
    if (skip_name("if")) node->expressions.push_back(expression());
    if (at_name("recursive")) {
      throw Error(ErrorKind::kUnsupported,
                  fmt::format("line {}: recursive loops are not supported", peek().line));
    }
    ++loops_;
    node->bodies.push_back(block({"else", "endfor"}));
    --loops_;
    if (next().text == "else") node->bodies.push_back(closed_block("endfor"));
    return node;
  }

  Draft choice() {
    Draft node = draft(Action::kIf);
    next();
    for (;;) {
      node->expressions.push_back(tuple(false));
      node->bodies.push_back(block({"elif", "else", "endif"}));
      const std::string tag = next().text;
      if (tag == "elif") continue;
      if (tag == "else") node->bodies.push_back(closed_block("endif"));
      return node;
    }
  }

  Draft assignment() {
    Draft node = draft(Action::kSet);
    next();
    node->targets.push_back(target(true));
    if (skip_symbol("=")) {
      node->expressions.push_back(tuple());
      return node;
    }
    node->action = Action::kSetBlock;
    if (at_symbol("|")) node->expressions.push_back(filters(nullptr, false));
    node->bodies.push_back(own_loops("endset"));
    return node;
  }

  // A block that is a function of its own: no break out of it.
  Body own_loops(std::string_view end) {
    const int outer = std::exchange(loops_, 0);
    Body result = closed_block(end);
    loops_ = outer;
    return result;
  }

  void signature(Statement& node) {
    expect_symbol("(");
    while (!at_symbol(")")) {
      if (!node.parameters.empty()) expect_symbol(",");
      Parameter parameter;
      parameter.name = expect_any_name();
      if (skip_symbol("=")) {
        parameter.otherwise = expression();
      } else if (!node.parameters.empty() && node.parameters.back().otherwise) {
        refuse("a parameter without a default after one with a default");
      }
      node.parameters.push_back(std::move(parameter));
    }
    expect_symbol(")");
  }

  // The body of a macro, and what it mentions.
  void function(Statement& node, std::string_view end) {
    const Mentions outer = std::exchange(mentions_, {});
    node.bodies.push_back(own_loops(end));
    const auto is_parameter = [&](std::string_view name) {
      return std::any_of(node.parameters.begin(), node.parameters.end(),
                         [&](const Parameter& parameter) { return parameter.name == name; });
    };
    node.takes_rest = mentions_.rest && !is_parameter("varargs");
    node.takes_named = mentions_.named && !is_parameter("kwargs");
    node.takes_caller = mentions_.caller && !is_parameter("caller");
    mentions_ = {outer.rest || mentions_.rest, outer.named || mentions_.named,
                 outer.caller || mentions_.caller};
  }

  Draft macro() {
    Draft node = draft(Action::kMacro);
    next();
    node->text = expect_any_name();
    signature(*node);
    function(*node, "endmacro");
    return node;
  }

  Draft call_block() {
    Draft node = draft(Action::kCallBlock);
    next();
    if (at_symbol("(")) signature(*node);
    node->expressions.push_back(expression());
    if (node->expressions[0]->operation != Operation::kCall) refuse("expected a call");
    function(*node, "endcall");
    return node;
  }

  Draft filter_block() {
    Draft node = draft(Action::kFilter);
    next();
    node->expressions.push_back(filters(nullptr, true));
    node->bodies.push_back(own_loops("endfilter"));
    return node;
  }

  Draft with_block() {
    Draft node = draft(Action::kWith);
    next();
    while (!at(TokenKind::kBlockEnd)) {
      if (!node->targets.empty()) expect_symbol(",");
      node->targets.push_back(target_of_with());
      expect_symbol("=");
      node->expressions.push_back(expression());
    }
    node->bodies.push_back(closed_block("endwith"));
    return node;
  }

  ExpressionPtr target_of_with() {
    auto node = std::make_unique<Expression>();
    node->operation = Operation::kName;
    node->line = peek().line;
    node->name = expect_any_name();
    return node;
  }

  int loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source) {
  Body body = Parser(lex(source)).whole();
  check_names(body);
  return body;
}

}  // namespace haul::tokenizers::jinja
