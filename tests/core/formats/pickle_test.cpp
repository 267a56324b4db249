#include "core/formats/pickle.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/pickle_builder.h"

namespace haul::core {
namespace {

using test::expect_error;
using test::little_endian;
using testing::HasSubstr;
namespace pickled = test::pickled;

std::optional<std::uint32_t> allow_thing(std::string_view name) {
  if (name == "a.thing") return 7;
  return std::nullopt;
}

Pickle read(const std::string& bytes) {
  return Pickle(bytes, allow_thing);
}

void expect_corrupt(const std::string& value, const char* message) {
  expect_error(ErrorKind::kCorrupt, HasSubstr(message), [&] { read(pickled::whole(value)); });
}

std::int64_t integer_of(const std::string& value) {
  const std::string bytes = pickled::whole(value);
  const Pickle pickle = read(bytes);
  EXPECT_EQ(pickle.kind(pickle.root()), PickleKind::kInt);
  return pickle.integer(pickle.root());
}

TEST(Pickle, ReadsIntegersOfEveryLength) {
  EXPECT_EQ(integer_of("K\xff"), 255);
  EXPECT_EQ(integer_of("M\x01\x02"), 0x201);
  EXPECT_EQ(integer_of("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(integer_of(std::string("\x8a\x00", 2)), 0);
  EXPECT_EQ(integer_of("\x8a\x01\x80"), -128);
  EXPECT_EQ(integer_of(std::string("\x8a\x02\x80\x00", 4)), 128);
  EXPECT_EQ(integer_of(pickled::integer(INT64_MIN)), INT64_MIN);
  EXPECT_EQ(integer_of(std::string("\x8b\x01\x00\x00\x00\x05", 6)), 5);
}

TEST(Pickle, KeepsTheBytesOfHugeIntegers) {
  const std::string bytes = pickled::whole("\x8a\x09" + std::string(9, '\x7f'));
  const Pickle pickle = read(bytes);
  EXPECT_EQ(pickle.kind(pickle.root()), PickleKind::kBigInt);
  EXPECT_EQ(pickle.text(pickle.root()), std::string(9, '\x7f'));
}

TEST(Pickle, ReadsFloatsAndConstants) {
  const std::string bytes = pickled::whole(
      pickled::tuple({std::string("G\x3f\xf8\0\0\0\0\0\0", 9), "N", "\x88", "\x89"}));
  const Pickle pickle = read(bytes);
  const auto items = pickle.items(pickle.root());
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(pickle.number(items[0]), 1.5);
  EXPECT_EQ(pickle.kind(items[1]), PickleKind::kNone);
  EXPECT_EQ(pickle.integer(items[2]), 1);
  EXPECT_EQ(pickle.integer(items[3]), 0);
}

TEST(Pickle, ReadsTextsOfEveryLengthField) {
  const std::string bytes = pickled::whole(pickled::list(
      {"X" + little_endian(2, 4) + "ab",
       "\x8c\x02"
       "cd",
       "\x8d" + little_endian(2, 8) + "ef", "C\x02gh", "B" + little_endian(2, 4) + "ij",
       "\x8e" + little_endian(2, 8) + "kl", "\x96" + little_endian(2, 8) + "mn", "U\x02op",
       "T" + little_endian(2, 4) + "qr"}));
  const Pickle pickle = read(bytes);
  std::string all;
  for (const auto item : pickle.items(pickle.root())) all += pickle.text(item);
  EXPECT_EQ(all, "abcdefghijklmnopqr");
  EXPECT_EQ(pickle.kind(pickle.items(pickle.root())[2]), PickleKind::kString);
  EXPECT_EQ(pickle.kind(pickle.items(pickle.root())[3]), PickleKind::kBytes);
}

TEST(Pickle, KeepsDictsInOrderWhileTheyGrow) {
  std::string value = "}q\x01";
  for (char i = 0; i < 20; ++i) value += std::string("K") + i + "Ns";
  const std::string bytes = pickled::whole(value + "(K\x14NK\x15Nu");
  const Pickle pickle = read(bytes);
  const auto items = pickle.items(pickle.root());
  ASSERT_EQ(items.size(), 44u);
  for (std::size_t i = 0; i < items.size(); i += 2) {
    EXPECT_EQ(pickle.integer(items[i]), static_cast<std::int64_t>(i / 2));
  }
}

TEST(Pickle, SharesValuesThroughTheMemo) {
  // A list, put by number, got back twice, changed after.
  const std::string bytes = pickled::whole(
      "]q\x05"
      "h\x05"
      "h\x05"
      "K\x01"
      "a"
      "\x87");
  const Pickle pickle = read(bytes);
  const auto items = pickle.items(pickle.root());
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0], items[1]);
  EXPECT_EQ(items[1], items[2]);
  EXPECT_EQ(pickle.items(items[0]).size(), 1u);
}

TEST(Pickle, ReadsProtocolFour) {
  const std::string rest =
      "\x8c\x01"
      "a\x94\x8c\x05thing\x94\x93\x94)R\x94h\x02\x86.";
  const std::string bytes = "\x80\x04\x95" + little_endian(rest.size(), 8) + rest;
  const Pickle pickle = read(bytes);
  const auto items = pickle.items(pickle.root());
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(pickle.kind(items[0]), PickleKind::kCall);
  EXPECT_EQ(pickle.kind(items[1]), PickleKind::kGlobal);
  EXPECT_EQ(pickle.global(items[1]), 7u);
  EXPECT_EQ(pickle.items(items[0])[0], items[1]);
}

TEST(Pickle, ReadsSets) {
  const std::string bytes = pickled::whole("\x8f(K\x01K\x02\x90(K\x03\x91\x86");
  const Pickle pickle = read(bytes);
  const auto items = pickle.items(pickle.root());
  EXPECT_EQ(pickle.items(items[0]).size(), 2u);
  EXPECT_EQ(pickle.kind(items[1]), PickleKind::kSet);
}

TEST(Pickle, NotesCallsAndStates) {
  const std::string thing = pickled::global("a", "thing");
  const std::string bytes = pickled::whole(pickled::call(thing, {"K\x05"}) + "K\x01Ns}b");
  const Pickle pickle = read(bytes);
  ASSERT_EQ(pickle.kind(pickle.root()), PickleKind::kCall);
  const auto items = pickle.items(pickle.root());
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(pickle.global(items[0]), 7u);
  EXPECT_EQ(pickle.integer(pickle.items(items[1])[0]), 5);
  EXPECT_EQ(pickle.integer(items[2]), 1);
  EXPECT_TRUE(pickle.has_state(pickle.root()));
}

TEST(Pickle, RefusesOtherGlobalsByName) {
  const auto expect_refused = [](const std::string& value, const char* name) {
    expect_error(ErrorKind::kUnsupported,
                 HasSubstr(std::string("refuses ") + name + ": this file wants to run code"),
                 [&] { read(pickled::whole(value)); });
  };
  expect_refused(pickled::call(pickled::global("os", "system"), {pickled::text("true")}),
                 "os.system");
  expect_refused(pickled::text("builtins") + pickled::text("eval") + "\x93", "builtins.eval");
  expect_refused("(" + pickled::text("true") + "ios\nsystem\n", "os.system");
  expect_refused(pickled::global("a", "thing.__init__"), "a.thing.__init__");
  expect_refused(pickled::global("o\x1b[2J", "x"), "o\\x1b[2J.x");
}

TEST(Pickle, RefusesOpcodesThatNoCheckpointNeeds) {
  for (const char* op : {"\x82\x01", "\x83\x01\x01", "\x97", "\x98", "I1\n", "o", "?"}) {
    expect_error(ErrorKind::kUnsupported, HasSubstr("which no checkpoint of tensors needs"),
                 [&] { read(pickled::whole(std::string("N") + op)); });
  }
  expect_error(ErrorKind::kUnsupported, HasSubstr("opcode 0x69"),
               [&] { read(pickled::whole("(ia\nthing\n")); });
  expect_error(ErrorKind::kUnsupported, HasSubstr("protocol 6"), [&] { read("\x80\x06N."); });
}

TEST(Pickle, RefusesEveryTruncation) {
  const std::string bytes = pickled::whole(
      pickled::dict({{pickled::text("a"), pickled::tensor(pickled::text("s"), 0, {1}, {1})}}));
  const auto allow_all = [](std::string_view) { return std::optional<std::uint32_t>(0); };
  ASSERT_NO_THROW(Pickle(bytes, allow_all));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    expect_error(ErrorKind::kCorrupt, HasSubstr("it ends in the middle"),
                 [&] { Pickle(std::string_view(bytes).substr(0, length), allow_all); });
  }
}

TEST(Pickle, RefusesLengthsBeyondItsEnd) {
  expect_corrupt(
      "X\xff\xff\xff\xff"
      "abc",
      "ends in the middle");
  expect_corrupt(
      "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
      "abc",
      "ends in the middle");
  expect_corrupt(
      "\x8b\xff\xff\xff\x7f"
      "abc",
      "ends in the middle");
  expect_corrupt("\x95\xff\xff\xff\xff\xff\xff\xff\xffN", "frame");
}

TEST(Pickle, RefusesABrokenStack) {
  expect_corrupt("", "0 values on the stack");
  expect_corrupt("NN", "2 values on the stack");
  expect_corrupt("(N", "it ends with");
  expect_corrupt("0", "the stack is empty");
  expect_corrupt("N(0", "the stack is empty");
  expect_corrupt("N(\x85", "the stack is empty");
  expect_corrupt("t", "no mark");
  expect_corrupt("](Na", "the stack is empty");
  expect_corrupt("}(Nu", "a key without a value");
  expect_corrupt("](NNu", "another kind");
  expect_corrupt("}Na", "another kind");
  expect_corrupt(")Na", "another kind");
  expect_corrupt("N)R", "no global");
  expect_corrupt(pickled::global("a", "thing") + "NR", "no tuple");
  expect_corrupt("}}b", "plain value");
  expect_corrupt("NN\x93", "no string");
  expect_error(ErrorKind::kCorrupt, HasSubstr("bytes follow its end"), [] { read("\x80\x02N.N"); });
}

TEST(Pickle, RefusesMemoNumbersOutOfRange) {
  expect_corrupt("h\x01", "memo 1 was never set");
  expect_corrupt("Nq\x02h\x01\x86", "memo 1 was never set");
  expect_corrupt("Nr\xff\xff\xff\xff", "memo 4294967295 is out of range");
}

}  // namespace
}  // namespace haul::core
