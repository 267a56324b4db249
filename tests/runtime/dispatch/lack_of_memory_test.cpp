#include "runtime/dispatch/lack_of_memory.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::runtime {
namespace {

using test::expect_error;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class LackOfMemory : public testing::Test {
 protected:
  LackOfMemory() {
    planned[0].device = gpu(0);
    planned[0].weights = kGiB;
  }

  template <typename Failure>
  void fail(const Failure& failure) {
    telling_lack_of_memory("model", planned, [&]() -> int { throw failure; });
  }

  std::array<PlanDevice, 1> planned;
};

TEST_F(LackOfMemory, IsToldWhoeverNoticesIt) {
  const auto told = AllOf(HasSubstr("model: not enough memory: "), HasSubstr("some of it"),
                          HasSubstr("; GPU 0: planned were " + format_bytes(kGiB) + ": weights"),
                          Not(HasSubstr("\\x")));
  for (const char* const words :
       {"CUDA out of memory. Tried to allocate some of it", "CUDA error: out of memory, some of it",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling some of it",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling some of it"}) {
    SCOPED_TRACE(words);
    expect_error(ErrorKind::kResource, told, [&] {
      fail(c10::Error({__func__, __FILE__, __LINE__}, words));
    });
  }
  for (const char* const words : {"GPU 0: some of it: out of memory", "cannot allocate some of it",
                                  "GPU 0: some of it for slots do not fit"}) {
    SCOPED_TRACE(words);
    expect_error(ErrorKind::kResource, told, [&] { fail(Error(ErrorKind::kResource, words)); });
  }
}

TEST_F(LackOfMemory, IsToldOnceWithTheNumbersOfWhoMissedIt) {
  const char* const words = "other: not enough memory: out of memory; GPU 1: planned were 5 GB";
  expect_error(ErrorKind::kResource, testing::Eq(words),
               [&] { fail(Error(ErrorKind::kResource, words)); });
}

TEST_F(LackOfMemory, IsNoOtherFailure) {
  const char* const words = "a.safetensors: cannot read 5 bytes at offset 7: Input/output error";
  expect_error(ErrorKind::kResource, testing::Eq(words),
               [&] { fail(Error(ErrorKind::kResource, words)); });
  const char* const file = "a.gguf: 7 tensors do not fit into the file's 5 bytes";
  expect_error(ErrorKind::kCorrupt, testing::Eq(file),
               [&] { fail(Error(ErrorKind::kCorrupt, file)); });
  EXPECT_THROW(
      fail(c10::Error({__func__, __FILE__, __LINE__}, "CUDA error: an illegal memory access")),
      c10::Error);
}

}  // namespace
}  // namespace haul::runtime
