#include "distributed/parallel/chunks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>

#include "tests/support/expect_error.h"

namespace haul::distributed {
namespace {

using testing::HasSubstr;

using Batch = std::tuple<at::Tensor, std::map<std::string, at::Tensor>, std::int64_t, at::Tensor>;

Batch batch_of(std::int64_t rows) {
  return {
      at::arange(rows * 3).view({rows, 3}), {{"b", at::arange(rows)}}, 7, at::scalar_tensor(2.5)};
}

TEST(Chunks, ComeBackAsTheyWereForEveryLength) {
  for (std::int64_t rows = 0; rows <= 17; ++rows) {
    for (std::int64_t count = 1; count <= 6; ++count) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(count) + " chunks");
      const Batch batch = batch_of(rows);
      const auto parts = split_rows(detail::ValueOf<Batch>::to(batch), count);
      EXPECT_EQ(parts.size(), std::max<std::size_t>(1, std::min(rows, count)));
      std::vector<PipelineValue> outputs;
      for (const PipelineValue& part : parts) {
        const auto [x, map, number, scalar] = detail::ValueOf<Batch>::from(part);
        EXPECT_EQ(x.size(0) > 0, rows > 0);
        EXPECT_EQ(x.size(0), map.at("b").size(0));
        EXPECT_EQ(scalar.item<double>(), 2.5);
        outputs.push_back(detail::ValueOf<std::tuple<at::Tensor, at::Tensor, std::int64_t>>::to(
            {x, map.at("b"), number}));
      }
      const auto [x, b, number] =
          detail::ValueOf<std::tuple<at::Tensor, at::Tensor, std::int64_t>>::from(
              join_rows(outputs));
      EXPECT_TRUE(x.equal(std::get<0>(batch)));
      EXPECT_TRUE(b.equal(std::get<1>(batch).at("b")));
      EXPECT_EQ(number, 7);
    }
  }
}

TEST(Chunks, OfTensorsThatDifferInRowsAreRefused) {
  const std::vector<at::Tensor> batch{at::ones({4}), at::ones({3})};
  test::expect_error(ErrorKind::kUsage, HasSubstr("4 rows and of 3"),
                     [&] { split_rows(detail::ValueOf<std::vector<at::Tensor>>::to(batch), 2); });
}

TEST(Chunks, ThatDifferInMoreThanRowsAreRefused) {
  const auto refused = [](const PipelineValue& a, const PipelineValue& b, const char* what) {
    test::expect_error(ErrorKind::kUsage, HasSubstr(what), [&] { join_rows({a, b}); });
  };
  refused({at::ones({2, 3})}, {at::ones({2, 4})}, "(2, 3) and (2, 4)");
  refused({at::scalar_tensor(1)}, {at::scalar_tensor(2)}, "a number each");
  refused({std::int64_t{1}}, {std::int64_t{2}}, "values that differ");
  refused({std::int64_t{1}}, {true}, "different kinds");
  refused({PipelineValue::List(2)}, {PipelineValue::List(3)}, "different lengths");
  refused({PipelineValue::Map{{"a", {}}}}, {PipelineValue::Map{{"b", {}}}}, "different names");
}

TEST(PipelineValues, SayWhatIsThereInsteadOfWhatIsWanted) {
  test::expect_error(ErrorKind::kUsage, HasSubstr("wants a tensor, and gets a map"),
                     [] { detail::ValueOf<at::Tensor>::from({PipelineValue::Map()}); });
  test::expect_error(ErrorKind::kUsage, HasSubstr("wants 2 values, and gets 3"), [] {
    detail::ValueOf<std::pair<bool, bool>>::from({PipelineValue::List(3)});
  });
}

}  // namespace
}  // namespace haul::distributed
