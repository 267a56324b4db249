#pragma once

// A parsed template. Immutable, so from any thread.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/template_value.h"

namespace haul::tokenizers::jinja {

enum class Operation : std::uint8_t {
  kConstant,     // value
  kName,         // name
  kMember,       // operands[0].name, assigned to when it is a namespace's
  kItem,         // operands[0][operands[1]]
  kSlice,        // operands[0][1:2:3], each but the first may be absent
  kCall,         // operands[0](operands[1…], named)
  kFilter,       // operands[0] | name(operands[1…], named); operands[0] absent in filter blocks
  kTest,         // operands[0] is name(operands[1…], named)
  kList,         // operands
  kTuple,        // operands
  kDict,         // operands: key, value, key, value, …
  kNegate,       // -operands[0]
  kPlus,         // +operands[0]
  kNot,          // not operands[0]
  kAnd,          // operands[0] and operands[1]
  kOr,           // operands[0] or operands[1]
  kConditional,  // operands[1] if operands[0] else operands[2], which may be absent
  kConcat,       // operands[0] ~ operands[1] ~ …
  kCompare,      // operands[0] names[0] operands[1] names[1] …
  kArithmetic,   // operands[0] name operands[1]
};

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  Operation operation = Operation::kConstant;
  int line = 1;
  int depth = 1;  // of the tree below, bounded by the parser
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> names;
  ExpressionPtr rest;        // *rest of a call
  ExpressionPtr rest_named;  // **rest_named of a call
};

enum class Action : std::uint8_t {
  kText,       // text
  kPrint,      // expressions[0]
  kIf,         // expressions[i] guards bodies[i]; one body more is the else
  kFor,        // target in expressions[0] if expressions[1]; bodies[0], else bodies[1]
  kSet,        // target = expressions[0]
  kSetBlock,   // target = bodies[0] through expressions[0], a filter that may be absent
  kMacro,      // name(parameters) bodies[0]
  kCallBlock,  // expressions[0] called with bodies[0], which takes parameters
  kFilter,     // bodies[0] through expressions[0]
  kWith,       // targets[i] = expressions[i] in bodies[0]
  kScope,      // bodies[0] with names of its own
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // may be absent
};

struct Statement {
  Action action = Action::kText;
  int line = 1;
  std::string text;                    // or the macro's name
  std::vector<ExpressionPtr> targets;  // kName, kMember or kTuple of them
  std::vector<ExpressionPtr> expressions;
  std::vector<Body> bodies;
  std::vector<Parameter> parameters;
  // What a macro's body mentions, and so takes beyond its parameters.
  bool takes_rest = false;
  bool takes_named = false;
  bool takes_caller = false;
};

// Throws Error(kCorrupt), or (kUnsupported) for tags that reach for other templates; the message
// begins with the line. REQUIRES: well-formed UTF-8.
Body parse_template(std::string_view source);

}  // namespace haul::tokenizers::jinja
