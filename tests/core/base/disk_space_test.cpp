#include "core/base/disk_space.h"

#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RequireDiskSpace, AFolderOnADiskThatIsTooSmallIsNamedWithWhatIsNeededAndFree) {
  const test::TemporaryFolder folder;
  require_disk_space(folder.path(), 1);
  test::expect_error(
      ErrorKind::kResource,
      AllOf(HasSubstr(folder.path().string() + ": "), HasSubstr("are needed and "),
            HasSubstr("B are free")),
      [&] { require_disk_space(folder.path(), std::numeric_limits<Bytes>::max() / 2); });
}

TEST(RequireDiskSpace, WhereNothingIsKnownNothingIsRefused) {
  require_disk_space("/no/such/folder", std::numeric_limits<Bytes>::max());
}

}  // namespace
}  // namespace haul::core
