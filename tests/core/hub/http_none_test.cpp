#include <gtest/gtest.h>

#include "core/hub/http.h"
#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

TEST(WithoutLibcurl, ARequestSaysWhatIsMissing) {
  test::expect_error(ErrorKind::kUnsupported, testing::HasSubstr("built without libcurl"),
                     [] { http_send({}, {}); });
}

}  // namespace
}  // namespace haul::core
