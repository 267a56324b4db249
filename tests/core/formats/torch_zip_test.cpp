#include "core/formats/torch_zip.h"

#include <span>
#include <string>

#include <gtest/gtest.h>

#include "core/formats/checkpoint.h"
#include "tests/support/expect_error.h"
#include "tests/support/pickle_builder.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/zip_builder.h"

namespace haul::core {
namespace {

using test::expect_error;
using test::ZipBuilder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace test::pickled;

// An archive as torch.save writes it, with one storage '0' of 24 bytes.
ZipBuilder archive_of(const std::string& value) {
  ZipBuilder builder;
  builder.parts = {{"archive/data.pkl", whole(value)},
                   {"archive/byteorder", "little"},
                   {"archive/data/0", "0123456789abcdefghijklmn"},
                   {"archive/version", "3\n"}};
  return builder;
}

TorchZip read(const ZipBuilder& builder) {
  const std::string archive = builder.build();
  return read_torch_zip(std::as_bytes(std::span(archive.data(), archive.size())));
}

TorchZip read(const std::string& value) {
  return read(archive_of(value));
}

std::vector<std::string> names(const TorchZip& content) {
  std::vector<std::string> result;
  for (const StoredTensor& tensor : content.tensors) result.push_back(tensor.name);
  return result;
}

std::string floats() {
  return storage("FloatStorage", "0", 6);
}

std::string a_tensor() {
  return tensor(floats(), 0, {2, 3}, {3, 1});
}

std::string number() {
  return tensor(floats(), 0, {}, {});
}

void expect_corrupt(const std::string& value, const std::string& message) {
  expect_error(ErrorKind::kCorrupt, HasSubstr(message), [&] { read(value); });
}

void expect_unsupported(const std::string& value, const std::string& message) {
  expect_error(ErrorKind::kUnsupported, HasSubstr(message), [&] { read(value); });
}

// Wraps a tensor in a dict, where it is called 'w'.
std::string as_w(const std::string& value) {
  return dict({{text("w"), value}});
}

TEST(TorchZip, GivesTheBytesOfATensor) {
  const std::string archive = archive_of(as_w(tensor(floats(), 2, {2, 2}, {2, 1}))).build();
  const test::TemporaryFolder folder;
  const Checkpoint checkpoint = Checkpoint::open(folder.write("x.bin", archive));
  EXPECT_EQ(checkpoint.format(), CheckpointFormat::kTorchZip);
  const StoredTensor* found = checkpoint.find("w");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->dtype, Dtype::kF32);
  EXPECT_THAT(found->shape, ElementsAre(2, 2));
  EXPECT_THAT(found->strides, IsEmpty());
  const auto bytes = checkpoint.bytes(*found);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
            "89abcdefghijklmn");
}

TEST(TorchZip, NamesTheFileInErrors) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("x.pt", archive_of(global("os", "system")).build());
  expect_error(ErrorKind::kUnsupported,
               HasSubstr("x.pt: data.pkl: refuses os.system: this file wants to run code"),
               [&] { Checkpoint::open(path); });
}

TEST(TorchZip, KeepsTheStridesOfViews) {
  const TorchZip content = read(dict({{text("t"), tensor(floats(), 0, {3, 2}, {1, 3})},
                                      {text("e"), tensor(floats(), 1, {4, 2}, {0, 1})},
                                      {text("s"), tensor(floats(), 1, {2}, {3})}}));
  ASSERT_THAT(names(content), ElementsAre("t", "e", "s"));
  EXPECT_THAT(content.tensors[0].strides, ElementsAre(1, 3));
  EXPECT_EQ(content.tensors[0].size, 24u);
  EXPECT_THAT(content.tensors[1].strides, ElementsAre(0, 1));
  EXPECT_EQ(content.tensors[1].size, 8u);
  EXPECT_EQ(content.tensors[1].offset, content.tensors[0].offset + 4);
  EXPECT_EQ(content.tensors[2].size, 16u);
}

TEST(TorchZip, ReadsEmptyTensorsAndNumbers) {
  const TorchZip content = read(dict({{text("n"), number()},
                                      {text("e"), tensor(floats(), 99, {0, 3}, {7, 7})},
                                      {text("one"), tensor(floats(), 0, {1, 3}, {99, 1})}}));
  EXPECT_EQ(content.tensors[0].size, 4u);
  EXPECT_THAT(content.tensors[0].shape, IsEmpty());
  EXPECT_EQ(content.tensors[1].size, 0u);
  EXPECT_THAT(content.tensors[1].strides, IsEmpty());
  EXPECT_THAT(content.tensors[2].strides, IsEmpty());
}

std::string tensor_v3(const std::string& type, std::int64_t count, const std::string& metadata) {
  std::vector<std::string> arguments = {storage("UntypedStorage", "0", 24),
                                        integer(0),
                                        integers({count}),
                                        integers({1}),
                                        "\x89",
                                        ordered_dict({}),
                                        global("torch", type)};
  if (!metadata.empty()) arguments.push_back(metadata);
  return call(global("torch._utils", "_rebuild_tensor_v3"), arguments);
}

TEST(TorchZip, ReadsUntypedStorages) {
  const TorchZip content = read(dict({{text("a"), tensor_v3("uint16", 12, "")},
                                      {text("b"), tensor_v3("float8_e4m3fn", 24, dict({}))},
                                      {text("c"), tensor_v3("float4_e2m1fn_x2", 24, "")}}));
  EXPECT_EQ(content.tensors[0].dtype, Dtype::kU16);
  EXPECT_EQ(content.tensors[1].dtype, Dtype::kF8E4M3);
  EXPECT_EQ(content.tensors[2].dtype, Dtype::kF4);
  EXPECT_THAT(content.tensors[2].shape, ElementsAre(48));
  EXPECT_EQ(content.tensors[2].size, 24u);
}

TEST(TorchZip, ReadsTheOldestFunctionAndTorchSize) {
  const std::string size = call(global("torch", "Size"), {integers({6})});
  const TorchZip content = read(as_w(call(global("torch._utils", "_rebuild_tensor"),
                                          {floats(), integer(0), size, integers({1})})));
  EXPECT_THAT(content.tensors.at(0).shape, ElementsAre(6));
}

TEST(TorchZip, ReadsParametersAndTensorsWithAttributes) {
  const std::string attribute = dict({{text("tag"), integer(1)}});
  const std::string with_attribute =
      call(global("torch._tensor", "_rebuild_from_type_v2"),
           {global("torch._utils", "_rebuild_tensor_v2"), global("torch", "Tensor"),
            tuple({floats(), integer(0), integers({6}), integers({1}), "\x89", ordered_dict({})}),
            attribute});
  const TorchZip content =
      read(dict({{text("p"), call(global("torch._utils", "_rebuild_parameter"),
                                  {a_tensor(), "\x88", ordered_dict({})})},
                 {text("q"), call(global("torch._utils", "_rebuild_parameter_with_state"),
                                  {a_tensor(), "\x88", ordered_dict({}), attribute})},
                 {text("t"), with_attribute}}));
  EXPECT_THAT(names(content), ElementsAre("p", "q", "t"));
  EXPECT_THAT(content.tensors[2].shape, ElementsAre(6));
}

TEST(TorchZip, NamesTensorsByTheirWay) {
  const std::string nested = dict({{text("a"), list({a_tensor(), integer(1), tuple({a_tensor()})})},
                                   {integer(3), ordered_dict({{text("b.c"), a_tensor()}})},
                                   {text("text"), text("no tensor")},
                                   {text("storage"), floats()}});
  EXPECT_THAT(names(read(nested)), ElementsAre("a.0", "a.2.0", "3.b.c"));
  EXPECT_THAT(names(read(a_tensor())), ElementsAre("tensor"));
  EXPECT_THAT(names(read(list({a_tensor(), a_tensor()}))), ElementsAre("0", "1"));
  EXPECT_THAT(names(read(integer(5))), IsEmpty());
}

TEST(TorchZip, ForgetsTheStateOfOrderedDicts) {
  const std::string state =
      ordered_dict({{text("w"), a_tensor()}}) + dict({{text("_metadata"), ordered_dict({})}}) + "b";
  EXPECT_THAT(names(read(state)), ElementsAre("w"));
}

TEST(TorchZip, LooksForWeightsUnderUsualKeys) {
  for (const char* key : {"state_dict", "model_state_dict", "model", "module"}) {
    const TorchZip content = read(dict({{text(key), as_w(a_tensor())}, {text("epoch"), "K\x03"}}));
    EXPECT_THAT(names(content), ElementsAre("w")) << key;
    EXPECT_THAT(content.notes, IsEmpty());
  }
  const TorchZip training =
      read(dict({{text("best"), number()},
                 {text("model"), as_w(a_tensor())},
                 {text("optimizer"), dict({{integer(0), as_w(a_tensor())}})}}));
  EXPECT_THAT(names(training), ElementsAre("w"));
  EXPECT_THAT(training.notes,
              ElementsAre("the weights are those under 'model'; left out: 'best', 'optimizer'"));
}

TEST(TorchZip, KeepsWholeNamesWhereTheWeightsAreNotPlain) {
  EXPECT_THAT(names(read(dict(
                  {{text("model"), as_w(a_tensor())}, {text("state_dict"), as_w(a_tensor())}}))),
              ElementsAre("model.w", "state_dict.w"));
  EXPECT_THAT(names(read(dict({{text("model"), as_w(a_tensor())}, {text("bias"), a_tensor()}}))),
              ElementsAre("model.w", "bias"));
  EXPECT_THAT(names(read(dict({{text("net"), as_w(a_tensor())}}))), ElementsAre("net.w"));
  EXPECT_THAT(names(read(dict({{text("model"), a_tensor()}}))), ElementsAre("model"));
  EXPECT_THAT(names(read(dict({{text("model"), dict({{text("module"), as_w(a_tensor())}})}}))),
              ElementsAre("module.w"));
}

TEST(TorchZip, RefusesNamesThatAreNone) {
  expect_corrupt(dict({{text("a.b"), a_tensor()}, {text("a"), dict({{text("b"), a_tensor()}})}}),
                 "tensor 'a.b': there are two of this name");
  expect_corrupt(dict({{text("\xff"), a_tensor()}}), "tensor '\\xff': its name is no text");
  expect_unsupported(dict({{"N", a_tensor()}}), "neither a string nor an integer");
  expect_unsupported(dict({{a_tensor(), "N"}}), "a dict with a tensor as a key");
  expect_unsupported(dict({{text("s"), "\x8f(" + a_tensor() + "\x90"}}),
                     "'s': tensors inside of a set have no name");
  expect_unsupported(dict({{text("s"), call(global("builtins", "set"), {list({a_tensor()})})}}),
                     "'s': tensors inside of builtins.set have no name");
  expect_unsupported(call(global("collections", "OrderedDict"), {list({a_tensor()})}),
                     "among its arguments");
}

TEST(TorchZip, RefusesViewsThatLeaveTheirStorage) {
  const auto expect_leaves = [](std::int64_t offset, const std::vector<std::int64_t>& size,
                                const std::vector<std::int64_t>& stride) {
    expect_corrupt(as_w(tensor(floats(), offset, size, stride)), "leaves its storage");
  };
  expect_leaves(0, {7}, {1});
  expect_leaves(1, {6}, {1});
  expect_leaves(0, {2, 3}, {4, 1});
  expect_leaves(-1, {1}, {1});
  expect_leaves(INT64_MAX, {1}, {1});
  expect_leaves(INT64_MAX / 4, {1}, {1});
  expect_leaves(6, {}, {});
}

TEST(TorchZip, RefusesShapesThatAreNone) {
  const auto expect_no_shape = [](const std::vector<std::int64_t>& size,
                                  const std::vector<std::int64_t>& stride) {
    expect_corrupt(as_w(tensor(floats(), 0, size, stride)), "is not one of a tensor");
  };
  expect_no_shape({-1}, {1});
  expect_no_shape({2}, {-1});
  expect_no_shape({2}, {1, 1});
  expect_no_shape({INT64_MAX, INT64_MAX}, {0, 0});
  expect_no_shape({2, 2}, {INT64_MAX, INT64_MAX});
  expect_no_shape({INT64_MAX}, {INT64_MAX});
  expect_corrupt(
      as_w(tensor(floats(), 0, std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1))),
      "65 dimensions");
}

TEST(TorchZip, RefusesStoragesOfAnotherSize) {
  expect_corrupt(as_w(tensor(storage("FloatStorage", "0", 5), 0, {1}, {1})),
                 "tensor 'w': its storage 'archive/data/0' should hold 5 elements of 4 bytes");
  expect_corrupt(as_w(tensor(storage("FloatStorage", "0", 7), 0, {1}, {1})), "should hold 7");
  expect_corrupt(as_w(tensor(storage("FloatStorage", "0", -1), 0, {1}, {1})), "should hold -1");
  expect_corrupt(as_w(tensor(storage("FloatStorage", "0", (INT64_MAX / 2) + 4), 0, {1}, {1})),
                 "should hold");
  expect_corrupt(as_w(tensor(storage("FloatStorage", "1", 6), 0, {1}, {1})),
                 "its storage 'archive/data/1' is not in the archive");
}

TEST(TorchZip, RefusesTensorsBuiltInOtherWays) {
  const std::string size = integers({6});
  const std::string v2 = global("torch._utils", "_rebuild_tensor_v2");
  expect_corrupt(as_w(call(v2, {floats(), integer(0), size})), "is called with 3 arguments");
  expect_corrupt(as_w(call(v2, {text("s"), integer(0), size, size})), "is no storage");
  expect_corrupt(as_w(call(v2, {text("s") + "Q", integer(0), size, size})), "not described");
  expect_corrupt(as_w(call(v2, {floats(), "N", size, size})), "its offset is no integer");
  expect_corrupt(as_w(call(v2, {floats(), integer(0), "]", size})), "its size is no tuple");
  expect_corrupt(as_w(call(v2, {floats(), integer(0), tuple({"N"}), size})), "no integer");
  expect_corrupt(as_w(a_tensor() + "}b"), "changed after it was built");
  expect_corrupt(as_w(a_tensor() + "NNs"), "changed after it was built");
  expect_corrupt(as_w(tensor(storage("UntypedStorage", "0", 24), 0, {1}, {1})), "no element type");
  expect_corrupt(as_w(call(global("torch._utils", "_rebuild_parameter"), {"N"})),
                 "no tensor in its wrapper");
  expect_unsupported(as_w(call(global("torch", "Tensor"), {})), "torch.Tensor is called in a way");
}

TEST(TorchZip, RefusesWrappersAroundWrappers) {
  std::string value = a_tensor();
  for (int i = 0; i < 9; ++i) {
    value = call(global("torch._utils", "_rebuild_parameter"), {value});
  }
  expect_corrupt(as_w(value), "too many wrappers");
}

TEST(TorchZip, RefusesTensorsThatAreNotDense) {
  const auto other = [](const char* function) {
    return as_w(call(global("torch._utils", function), {}));
  };
  expect_unsupported(other("_rebuild_sparse_tensor"), "tensor 'w': it is a sparse tensor");
  expect_unsupported(other("_rebuild_qtensor"), "tensor 'w': it is a quantised tensor");
  expect_unsupported(other("_rebuild_nested_tensor"), "tensor 'w': it is a nested tensor");
  expect_unsupported(other("_rebuild_meta_tensor_no_storage"), "has no data");
}

TEST(TorchZip, RefusesElementsThatHaulLacks) {
  expect_unsupported(as_w(tensor(storage("ComplexDoubleStorage", "0", 1), 0, {1}, {1})),
                     "tensor 'w': elements of type complex128");
  expect_unsupported(as_w(tensor_v3("complex32", 6, "")), "elements of type complex32");
  expect_unsupported(as_w(tensor_v3("float32", 6, dict({{text("conj"), "\x88"}}))), "conjugated");
  EXPECT_EQ(read(as_w(tensor_v3("float32", 6, dict({{text("neg"), "\x89"}})))).tensors.size(), 1u);
}

TEST(TorchZip, EndsOnSharingThatWouldExplode) {
  // Each list holds the one before twice: 2^60 tensors in a few hundred bytes.
  std::string value = "](" + a_tensor() + "eq\x01";
  for (int i = 0; i < 60; ++i) value += std::string("0](h\x01h\x01") + "eq\x01";
  expect_unsupported(value, "far more names than the pickle has bytes");
  // The same with keys that add nothing to a name.
  value = "}" + text("") + a_tensor() + "sq\x01" + "0";
  for (int i = 0; i < 60; ++i) value += "}(" + text("") + "h\x01" + text("") + "h\x01uq\x01" + "0";
  expect_error(ErrorKind::kCorrupt, HasSubstr("two of this name"), [&] { read(value + "h\x01"); });
}

TEST(TorchZip, EndsOnLongNamesSharedByManyTensors) {
  std::string value = a_tensor() + "q\x01" + "0](";
  for (int i = 0; i < 2000; ++i) value += "h\x01";
  expect_unsupported(dict({{text(std::string(10000, 'k')), value + "e"}}), "far more names");
}

TEST(TorchZip, RefusesValuesThatContainThemselves) {
  expect_unsupported("]q\x01h\x01" + std::string("a"), "contains itself");
  expect_unsupported("}q\x01" + text("a") + "h\x01s", "contains itself");
}

TEST(TorchZip, RefusesDeepNesting) {
  std::string deep = a_tensor();
  for (int i = 0; i < 100'000; ++i) deep += "\x85";
  expect_unsupported(deep, "nested more than 200 deep");
  deep = a_tensor();
  for (int i = 0; i < 190; ++i) deep += "\x85";
  EXPECT_EQ(read(deep).tensors.size(), 1u);
}

TEST(TorchZip, RefusesBigEndianNumbers) {
  ZipBuilder builder = archive_of(as_w(a_tensor()));
  builder.parts[1].data = "big";
  expect_error(ErrorKind::kUnsupported, HasSubstr("big-endian"), [&] { read(builder); });
  builder.parts[1].data = "middle";
  expect_error(ErrorKind::kCorrupt, HasSubstr("'middle'"), [&] { read(builder); });
  builder.parts.erase(builder.parts.begin() + 1);  // as before torch 2.1
  EXPECT_EQ(read(builder).tensors.size(), 1u);
}

TEST(TorchZip, RefusesCompressedStoragesByName) {
  ZipBuilder builder = archive_of(as_w(a_tensor()));
  builder.parts[2].method = 8;
  expect_error(ErrorKind::kUnsupported,
               AllOf(HasSubstr("tensor 'w'"), HasSubstr("'archive/data/0'"), HasSubstr("deflated")),
               [&] { read(builder); });
}

TEST(TorchZip, RefusesOtherArchives) {
  ZipBuilder builder = archive_of(as_w(a_tensor()));
  builder.parts.push_back({"archive/constants.pkl", ""});
  expect_error(ErrorKind::kUnsupported, HasSubstr("TorchScript"), [&] { read(builder); });
  builder.parts = {{"README", "text"}};
  expect_error(ErrorKind::kUnsupported, HasSubstr("'README' lies in no folder"),
               [&] { read(builder); });
  builder.parts = {{"folder/README", "text"}};
  expect_error(ErrorKind::kUnsupported, HasSubstr("no entry 'folder/data.pkl'"),
               [&] { read(builder); });
}

TEST(TorchZip, TellsHowToConvertOldFiles) {
  const auto expect_hint = [](const std::string& file, const char* message) {
    try {
      read_torch_zip(std::as_bytes(std::span(file.data(), file.size())));
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
      EXPECT_THAT(std::string(error.what()), HasSubstr(message));
      EXPECT_THAT(error.hint(), HasSubstr("torch.save"));
    }
  };
  expect_hint("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02",
              "before version 1.6");
  expect_hint(std::string(257, '\0') + "ustar" + std::string(200, '\0'), "tar archive");
  expect_hint("\x80\x02N.", "bare pickle");
  const std::string junk = "<html>";
  expect_error(ErrorKind::kCorrupt, HasSubstr("begins with '<htm'"),
               [&] { read_torch_zip(std::as_bytes(std::span(junk.data(), junk.size()))); });
}

}  // namespace
}  // namespace haul::core
