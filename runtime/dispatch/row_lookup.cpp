#include "runtime/dispatch/row_lookup.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/weight_store.h"
#include "runtime/tiers/read_end.h"

namespace haul::runtime {
namespace {

constexpr std::size_t kAtOnce = 256;  // rows
constexpr Bytes kPiece = 8 * kMiB;    // of a table

// Memory for parts of a weight, which are read side by side.
class Parts {
 public:
  Parts(const Weight& weight, Bytes size, std::size_t count)
      : weight_(weight),
        step_((size + 3 * kReadSlack - 1) / kReadSlack * kReadSlack),
        memory_(new std::byte[count * step_]) {}

  struct Range {
    Bytes offset;
    Bytes size;
  };
  // At most as many as there is memory for.
  void read(const Home& home, const std::vector<Range>& ranges) {
    std::vector<ReadEnd> ends;
    ends.reserve(ranges.size());
    std::exception_ptr failure;
    const auto guarded = [&](const auto& work) {
      try {
        work();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    };
    guarded([&] {
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        ReadEnd end;
        weight_.store->disk().read({home.file, home.offset + ranges[i].offset, ranges[i].size,
                                    memory_.get() + i * step_ + kReadSlack, end.done()});
        ends.push_back(std::move(end));
      }
    });
    // All of them, since they write to this memory.
    for (ReadEnd& end : ends) guarded([&] { end.wait(); });
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (Error& error) {
      error.add_context(fmt::format("weight '{}'", weight_.name));
      throw;
    }
  }
  const std::byte* operator[](std::size_t i) const {
    return memory_.get() + i * step_ + kReadSlack;
  }

 private:
  const Weight& weight_;
  Bytes step_;
  std::unique_ptr<std::byte[]> memory_;
};

bool is_whole(const at::Tensor& table) {
  return table.is_contiguous() && table.storage_offset() == 0;
}

}  // namespace

bool can_look_up(const at::Tensor& table) {
  const Weight* const weight = find_weight(table);
  return weight != nullptr && weight->looked_up && table.dim() == 2 && is_whole(table);
}

at::Tensor look_up(const at::Tensor& table, const at::Tensor& ids) {
  const Weight& weight = *find_weight(table);
  TORCH_CHECK(ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt,
              "Expected indices of an embedding to be Long or Int, but got ", ids.scalar_type());
  const at::Tensor wanted = ids.to(at::kLong).contiguous();
  const auto* const rows = wanted.const_data_ptr<std::int64_t>();
  // The places of the ids in the order of the table, so that each row is read once.
  std::vector<std::int64_t> places(static_cast<std::size_t>(wanted.numel()));
  std::iota(places.begin(), places.end(), 0);
  std::sort(places.begin(), places.end(),
            [&](std::int64_t a, std::int64_t b) { return rows[a] < rows[b]; });
  TORCH_CHECK_INDEX(
      places.empty() || (rows[places.front()] >= 0 && rows[places.back()] < table.size(0)),
      "index out of range in self");
  std::vector<std::int64_t> shape = ids.sizes().vec();
  shape.push_back(table.size(1));
  at::Tensor result = at::empty(shape, at::TensorOptions(at::kCPU).dtype(table.scalar_type()));
  auto* const to = static_cast<std::byte*>(result.mutable_data_ptr());
  const Bytes size = static_cast<Bytes>(table.size(1)) * table.element_size();
  const auto put = [&](std::int64_t place, const std::byte* row) {
    std::memcpy(to + static_cast<Bytes>(place) * size, row, size);
  };

  const Home home = weight.streamer->home(weight.number);
  if (home.host != nullptr) {  // since it has been written to
    for (const std::int64_t place : places) {
      put(place, home.host + static_cast<Bytes>(rows[place]) * size);
    }
    return result;
  }
  Parts parts(weight, size, std::min(kAtOnce, places.size()));
  std::vector<Parts::Range> ranges;
  Bytes read = 0;
  for (std::size_t begin = 0, end = 0; begin < places.size(); begin = end) {
    ranges.clear();
    const auto is_new = [&](std::size_t i) {
      return i == begin || rows[places[i]] != rows[places[i - 1]];
    };
    for (; end < places.size() && (ranges.size() < kAtOnce || !is_new(end)); ++end) {
      if (is_new(end)) ranges.push_back({static_cast<Bytes>(rows[places[end]]) * size, size});
    }
    parts.read(home, ranges);
    read += ranges.size() * size;
    std::size_t part = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (i > begin && is_new(i)) ++part;
      put(places[i], parts[part]);
    }
  }
  weight.streamer->count_read(read);
  return result;
}

bool copy_table(const at::Tensor& table, const at::Tensor& to) {
  const Weight* const weight = find_weight(table);
  if (weight == nullptr || !weight->looked_up || is_marked(to) || !to.is_cpu() ||
      !is_whole(table) || !to.is_contiguous() || to.scalar_type() != table.scalar_type() ||
      to.sizes() != table.sizes()) {
    return false;
  }
  const Home home = weight->streamer->home(weight->number);
  if (home.host != nullptr) return false;
  auto* const begin = static_cast<std::byte*>(to.mutable_data_ptr());
  Parts part(*weight, kPiece, 1);
  for (Bytes at = 0; at < to.nbytes(); at += kPiece) {
    const Bytes size = std::min<Bytes>(kPiece, to.nbytes() - at);
    part.read(home, {{at, size}});
    std::memcpy(begin + at, part[0], size);
  }
  weight->streamer->count_read(to.nbytes());
  return true;
}

}  // namespace haul::runtime
