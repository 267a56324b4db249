// A template is foreign code: nothing that it does may take much, or reach what it was not given.

#include <string>

#include <gtest/gtest.h>

#include "haul/error.h"
#include "tests/support/expect_error.h"
#include "tests/tokenizers/render.h"

namespace haul::test {
namespace {

using testing::HasSubstr;

void exhausts(const std::string& source, const std::string& what) {
  SCOPED_TRACE(source.substr(0, 100));
  expect_error(ErrorKind::kResource, HasSubstr(what), [&] { render(source); });
}

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(TemplateSandbox, StepsAreCounted) {
  exhausts("{% set r = range(9999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
           "too many steps");
}

TEST(TemplateSandbox, TextCannotGrowWithoutEnd) {
  exhausts("{{ 'a' * 999999999999 }}", "too much memory");
  exhausts(
      "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
      "{% endfor %}",
      "too much memory");
  exhausts("{{ ('a' * 9999999).replace('', 'b' * 99) }}", "too m");
  exhausts("{{ 'a'.center(99999999999) }}", "too much memory");
  exhausts("{% for i in range(9999) %}{{ 'a' * 99999 }}{% endfor %}", "too much memory");
}

TEST(TemplateSandbox, SharedValuesThatUnfoldAreCounted) {
  const std::string doubled =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}";
  exhausts(doubled + "{{ ns.x }}", "too m");
  exhausts(doubled + "{{ ns.x | tojson }}", "too m");
}

TEST(TemplateSandbox, NestingIsBounded) {
  exhausts(
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}"
      "{% endfor %}",
      "nested");
  exhausts("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep a recursion");
  expect_error(ErrorKind::kCorrupt, HasSubstr("nested too deeply"),
               [] { render("{{ " + repeat("(", 9999) + "1" + repeat(")", 9999) + " }}"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("nested too deeply"),
               [] { render("{{ 1" + repeat("+1", 100000) + " }}"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("nested too deeply"),
               [] { render(repeat("{% if 1 %}", 100000)); });
}

TEST(TemplateSandbox, RangesAreBounded) {
  EXPECT_EQ(print("range(100000) | length"), "100000");
  exhausts("{{ range(100001) }}", "range() of more than 100000");
}

TEST(TemplateSandbox, NumbersThatLeave64BitsAreRefused) {
  for (const char* source : {"9223372036854775807 + 1", "2 ** 64", "-9223372036854775807 * 2"}) {
    expect_error(ErrorKind::kCorrupt, HasSubstr("64 bits"), [&] { print(source); });
  }
}

TEST(TemplateSandbox, PythonsInsidesCannotBeReached) {
  EXPECT_EQ(print("''.__class__"), "");
  EXPECT_EQ(print("'{0.__class__}'.format(1)"), "");
  expect_error(ErrorKind::kCorrupt, HasSubstr("'__class__' of 'str' object is unsafe"),
               [] { print("''.__class__.__mro__"); });
}

TEST(TemplateSandbox, ValuesCannotBeChanged) {
  expect_error(ErrorKind::kCorrupt, HasSubstr("'append' of 'list' object is unsafe"),
               [] { print("[1].append(2)"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("'update' of 'dict' object is unsafe"),
               [] { print("{}.update({})"); });
}

TEST(TemplateSandbox, ObjectsThatReferToEachOtherAreFreed) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.self = ns %}{% for i in [1, 2] %}"
                   "{% macro m() %}{{ i }}{% endmacro %}{% set ns.m = m %}{% set ns.l = loop %}"
                   "{% endfor %}{{ ns.self.m() }}{{ ns.l.index }}"),
            "22");
}

TEST(TemplateSandbox, OtherTemplatesCannotBeReached) {
  expect_error(ErrorKind::kUnsupported, HasSubstr("'include'"),
               [] { render("{% include '/etc/passwd' %}"); });
}

}  // namespace
}  // namespace haul::test
