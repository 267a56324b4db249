#include "haul/torch/split.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

namespace haul {

Share share_of(std::int64_t total, std::int64_t process, std::int64_t processes,
               bool apply_padding) {
  if (total < 0 || processes < 1 || process < 0 || process >= processes) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} items for process {} of {} processes", total, process, processes));
  }
  const std::int64_t each = total / processes;
  const std::int64_t more = total % processes;
  Share share;
  share.begin = process * each + std::min(process, more);
  share.count = each + (process < more ? 1 : 0);
  share.total = total;
  if (apply_padding) share.padding = each + (more > 0 ? 1 : 0) - share.count;
  return share;
}

namespace detail {

void refuse_lengths(const std::string& key, std::int64_t length, const std::string& first,
                    std::int64_t expected) {
  throw Error(ErrorKind::kUsage,
              fmt::format("a map is split value by value: '{}' has {} items, '{}' has {}", key,
                          length, first, expected));
}

void refuse_padding() {
  throw Error(ErrorKind::kUsage, "items of this type cannot be padded: it has no append()");
}

std::int64_t rows_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    throw Error(ErrorKind::kUsage, "a tensor without a dimension cannot be split");
  }
  return tensor.size(0);
}

at::Tensor part_of(const at::Tensor& tensor, const Share& share) {
  at::Tensor rows = tensor.narrow(0, share.begin, share.count);
  if (share.padding == 0) return rows;
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[0] = share.padding;
  return at::cat({rows, tensor.narrow(0, share.total - 1, 1).expand(sizes)});
}

}  // namespace detail
}  // namespace haul
