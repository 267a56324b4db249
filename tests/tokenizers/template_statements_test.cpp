#include <string>

#include <gtest/gtest.h>

#include "haul/error.h"
#include "tests/support/expect_error.h"
#include "tests/tokenizers/render.h"

namespace haul::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TemplateStatements, BlockTagsTakeTheirLineAlong) {
  EXPECT_EQ(render("  {% if true %}\n  a\n  {% endif %}\nb\n"), "  a\nb");
  EXPECT_EQ(render("x {%+ if true +%}\n a {% endif %}\nz"), "x \n a z");
  EXPECT_EQ(render("x  {%- if true -%}  a  {%- endif -%}  y"), "xay");
  EXPECT_EQ(render("  {{ 1 }}\n"), "  1");
}

TEST(TemplateStatements, LoopsKnowTheirNeighbours) {
  EXPECT_EQ(render("{% for i in 'abc' %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}"
                   "{{ loop.index }}{{ loop.revindex0 }}{{ ';' if not loop.last }}{% endfor %}"),
            "<a>b12;a<b>c21;b<c>30");
}

TEST(TemplateStatements, AConditionOfALoopSeesWhatTheBodyChanged) {
  EXPECT_EQ(render("{% set ns = namespace(stop=false) %}{% for i in [1, 2, 3, 4] if not ns.stop %}"
                   "{{ i }}{% if i == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}"),
            "12");
}

TEST(TemplateStatements, NamesOfALoopStayInside) {
  EXPECT_EQ(render("{% set a = 1 %}{% for i in [1, 2] %}{% set a = a + i %}{{ a }},{% endfor %}"
                   "{{ a }}"),
            "2,3,1");
}

TEST(TemplateStatements, ElseOfALoopRunsWhenNoIterationEnded) {
  EXPECT_EQ(render("{% for i in [] %}x{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for i in [1] %}{% break %}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for i in [1] %}x{% else %}none{% endfor %}"), "x");
}

TEST(TemplateStatements, MacrosTakeDefaultsNamesAndCallers) {
  EXPECT_EQ(render("{% macro m(a, b=a) %}[{{ a }}{{ b }}{{ caller() if caller }}]{% endmacro %}"
                   "{{ m(1) }}{{ m(b=2, a=3) }}{% call m(4) %}x{% endcall %}"),
            "[11][32][44x]");
  EXPECT_EQ(render("{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, k=2) }}"),
            "(1,){'k': 2}");
  expect_error(ErrorKind::kCorrupt, HasSubstr("macro 'm' takes at most 1 arguments"),
               [] { render("{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}"); });
}

TEST(TemplateStatements, BlocksCanBeKeptFilteredAndMarked) {
  EXPECT_EQ(render("{% set x | upper %}a{{ 1 }}{% endset %}{{ x }}"), "A1");
  EXPECT_EQ(render("{% filter trim | upper %} a {% endfilter %}"), "A");
  EXPECT_EQ(render("{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q is defined }}"),
            "aFalse");
  EXPECT_EQ(render("{% raw %}{{ x }}{% endraw %}{# gone #}"), "{{ x }}");
}

TEST(TemplateStatements, ErrorsNameTheTemplateAndTheLine) {
  const auto refuses = [](const char* source, const char* where, const char* what) {
    expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr(where), HasSubstr(what)),
                 [&] { render(source, R"({"n": 1})"); });
  };
  refuses("\n\n{{ n.x.y }}", "t: line 3: ", "'int object' has no attribute 'x'");
  refuses("a\n{% if n %}", "t: line 2: ", "expected a tag 'endif'");
  refuses("a\n{{ n + }}", "t: line 2: ", "expected an expression");
  refuses("\n{{ n | nope }}", "t: line 2: ", "no filter is named 'nope'");
  refuses("{% nope %}", "t: line 1: ", "unknown tag 'nope'");
  refuses("{% for a, b in [[1]] %}{% endfor %}", "t: line 1: ", "1 values for 2 names");
}

TEST(TemplateStatements, AnUnknownFilterInAConditionIsRefusedWhenReached) {
  EXPECT_EQ(render("{% if false %}{{ 1 | nope }}{% endif %}ok"), "ok");
  expect_error(ErrorKind::kCorrupt, HasSubstr("no filter is named 'nope'"),
               [] { render("{% if true %}{{ 1 | nope }}{% endif %}"); });
}

}  // namespace
}  // namespace haul::test
