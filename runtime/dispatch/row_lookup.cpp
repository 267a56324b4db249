#include "runtime/dispatch/row_lookup.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/dispatch/weight_store.h"
#include "runtime/tiers/read_end.h"

namespace haul::runtime {
namespace {

constexpr std::size_t kAtOnce = 256;  // rows

// The rows of these numbers, one after another, to `to`.
void read_rows(DiskReader& disk, const Home& home, std::span<const std::int64_t> rows, Bytes size,
               std::byte* to) {
  const Bytes step = (size + 3 * kReadSlack - 1) / kReadSlack * kReadSlack;
  const std::size_t at_once = std::min(kAtOnce, rows.size());
  const std::unique_ptr<std::byte[]> buffer(new std::byte[at_once * step]);
  for (; !rows.empty(); rows = rows.subspan(std::min(at_once, rows.size()))) {
    const std::span<const std::int64_t> now = rows.first(std::min(at_once, rows.size()));
    std::vector<ReadEnd> ends(now.size());
    for (std::size_t i = 0; i < now.size(); ++i) {
      disk.read({home.file, home.offset + static_cast<Bytes>(now[i]) * size, size,
                 buffer.get() + i * step + kReadSlack, ends[i].done()});
    }
    std::exception_ptr failure;
    for (ReadEnd& end : ends) {  // all of them, before the buffer goes
      try {
        end.wait();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    for (std::size_t i = 0; i < now.size(); ++i, to += size) {
      std::memcpy(to, buffer.get() + i * step + kReadSlack, size);
    }
  }
}

}  // namespace

std::optional<at::Tensor> look_up(const at::Tensor& table, const at::Tensor& ids) {
  Weight* const weight = find_weight(table);
  if (weight == nullptr || weight->streamer == nullptr || !weight->device.is_cpu() ||
      table.dim() != 2 || !table.is_contiguous() || table.storage_offset() != 0) {
    return std::nullopt;
  }
  const at::Tensor wanted = ids.to(at::kLong).contiguous();
  const std::span<const std::int64_t> numbers(wanted.const_data_ptr<std::int64_t>(),
                                              static_cast<std::size_t>(wanted.numel()));
  std::vector<std::int64_t> rows(numbers.begin(), numbers.end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  TORCH_CHECK_INDEX(rows.empty() || (rows.front() >= 0 && rows.back() < table.size(0)),
                    "index out of range in self");

  const Home home = weight->streamer->home(weight->number);
  const Bytes size = static_cast<Bytes>(table.size(1)) * table.element_size();
  std::vector<std::byte> read;
  if (home.host == nullptr) {
    read.resize(rows.size() * size);
    try {
      read_rows(weight->store->disk(), home, rows, size, read.data());
    } catch (Error& error) {
      error.add_context(fmt::format("weight '{}'", weight->name));
      throw;
    }
    weight->streamer->count_read(read.size());
  }
  const auto row = [&](std::int64_t number) -> const std::byte* {
    if (home.host != nullptr) return home.host + static_cast<Bytes>(number) * size;
    const auto place = std::lower_bound(rows.begin(), rows.end(), number) - rows.begin();
    return read.data() + static_cast<Bytes>(place) * size;
  };
  std::vector<std::int64_t> shape = ids.sizes().vec();
  shape.push_back(table.size(1));
  at::Tensor result = at::empty(shape, at::TensorOptions(at::kCPU).dtype(table.scalar_type()));
  auto* to = static_cast<std::byte*>(result.mutable_data_ptr());
  for (const std::int64_t number : numbers) {
    std::memcpy(to, row(number), size);
    to += size;
  }
  return result;
}

}  // namespace haul::runtime
