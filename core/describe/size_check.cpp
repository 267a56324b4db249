#include "core/describe/size_check.h"

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 56;

class Total {
 public:
  explicit Total(std::string_view source) : source_(source) {}

  void add(const ModuleSpec& module) {
    for (const ParameterSpec& parameter : module.parameters) add(parameter.name, parameter.shape);
    for (const BufferSpec& buffer : module.buffers) add(buffer.name, buffer.shape);
    for (const ModuleSpec& child : module.children) add(child);
  }

 private:
  void add(const std::string& name, const Shape& shape) {
    std::uint64_t count = 1;
    for (const std::int64_t size : shape) {
      const auto factor = static_cast<std::uint64_t>(size);
      if (size < 0 || (factor > 0 && count > kMaxElements / factor)) refuse(name);
      count *= factor;
    }
    total_ += count;
    if (total_ > kMaxElements) refuse(name);
  }

  [[noreturn]] void refuse(const std::string& name) const {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: with '{}' the model has more than 2^56 elements", source_, name));
  }

  std::string_view source_;
  std::uint64_t total_ = 0;
};

}  // namespace

void check_sizes(const Description& description, std::string_view source) {
  Total(source).add(description.root);
}

}  // namespace haul::core
