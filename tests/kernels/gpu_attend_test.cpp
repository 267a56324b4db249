// Attention on a GPU against its plain twin.

#include <algorithm>
#include <array>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pow.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include "haul/estimate.h"
#include "kernels/angles.h"
#include "kernels/attend.h"
#include "tests/kernels/gpu_ops.h"

namespace haul::kernels {
namespace {

class GpuAttention : public OnGpu {
 protected:
  // Whether no kernel takes heads of this size.
  bool is_torchs(std::int64_t size) const { return size % 8 != 0; }
};

// Of so many tokens, the last of all.
at::Tensor shown(std::int64_t tokens, std::int64_t total) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(at::kCUDA);
  const at::Tensor looking = at::arange(total - tokens, total, options).unsqueeze(1);
  return (at::arange(total, options) <= looking).view({1, 1, tokens, total});
}

TEST_P(GpuAttention, AttendAfterOthersLooksAtWhatAMaskWouldShow) {
  const double near = std::max(rounding, 1e-4);
  for (const auto& [batch, heads, kv_heads, size] :
       {std::array<std::int64_t, 4>{1, 8, 2, 128}, {2, 6, 6, 80}, {1, 4, 1, 20}}) {
    for (const std::int64_t tokens : {2, 5, 65, 512, 513, 1100}) {
      for (const std::int64_t past : {0, 1, 203}) {
        const at::Tensor queries = some({batch, heads, tokens, size});
        const at::Tensor keys = some({batch, kv_heads, past + tokens, size});
        const at::Tensor values = some({batch, kv_heads, past + tokens, size});
        const Looking masked{shown(tokens, past + tokens)};
        const at::Tensor expected =
            plain_attend(exact(queries), exact(keys), exact(values), masked, 0.1);
        for (const Looking& looking : {masked, Looking{{}, true}}) {
          const at::Tensor found = attend(queries, keys, values, looking, 0.1);
          ASSERT_EQ(found.sizes(), expected.sizes());
          EXPECT_TRUE(at::allclose(exact(found), expected, 2 * near, near))
              << tokens << " tokens after " << past << ", " << heads << " heads of " << size << ": "
              << (exact(found) - expected).abs().max().item<double>();
        }
      }
    }
  }
}

// As plans count it. Rows of odd lengths have no copies.
TEST_P(GpuAttention, AttendAfterOthersHoldsWhoLooksAtWhomOnce) {
  constexpr std::int64_t kTokens = 2048, kTotal = 7003, kLine = 7008;
  const at::Tensor queries = some({1, 1, kTokens, 8});
  const at::Tensor keys = some({1, 1, kTotal, 8});
  const at::Tensor values = some({1, 1, kTotal, 8});
  const auto held = [&](const Looking& looking) {
    using namespace c10::cuda::CUDACachingAllocator;
    attend(queries, keys, values, looking, 0.1);
    const auto before = getDeviceStats(0).allocated_bytes[0].current;
    resetPeakStats(0);
    attend(queries, keys, values, looking, 0.1);
    return static_cast<double>(getDeviceStats(0).allocated_bytes[0].peak - before);
  };
  const auto number = static_cast<double>(c10::elementSize(type));
  EXPECT_LE(held({{}, true}), 1.05 * number * kTokensThatLookBack * kLine);
  EXPECT_LE(held({shown(kTokens, kTotal)}), 1.05 * number * kTokens * kLine);
}

struct Heads {
  std::int64_t batch, heads, kv_heads, size;
};
constexpr std::array<Heads, 10> kHeads = {{{1, 32, 8, 128},
                                           {3, 9, 3, 64},
                                           {2, 25, 25, 64},
                                           {1, 16, 1, 256},
                                           {2, 6, 1, 128},
                                           {1, 32, 32, 80},
                                           {2, 4, 2, 96},
                                           {2, 4, 2, 160},
                                           {1, 3, 1, 200},
                                           {2, 4, 2, 84}}};

// As many as there are heads, from steep to nearly none.
at::Tensor slopes_for(std::int64_t heads) {
  return at::pow(2.0, -at::arange(1, heads + 1, at::kFloat) * 8 / heads).cuda();
}

// After thousands in many parts, whose sums are joined.
TEST_P(GpuAttention, AttendOfOneTokenIsTheSameAsOfTorchsOps) {
  at::manual_seed(15);
  for (const auto& [batch, heads, kv_heads, size] : kHeads) {
    for (const std::int64_t tokens : {1, 2, 63, 64, 65, 200, 1000, 8201}) {
      const at::Tensor queries = some({batch, 1, heads, size}).transpose(1, 2);
      const at::Tensor keys = some({batch, kv_heads, tokens + 9, size});
      const at::Tensor values = some({batch, kv_heads, tokens + 9, size});
      const at::Tensor seen_keys = keys.narrow(2, 0, tokens);
      const at::Tensor seen_values = values.narrow(2, 0, tokens);
      const at::Tensor places = at::arange(tokens, queries.options().dtype(at::kLong));
      for (const at::Tensor& slopes : {at::Tensor(), slopes_for(heads)}) {
        // Ours sums in float32. Torch's adds to a score what may be as large as the last place.
        const double largest = slopes.defined() ? static_cast<double>(tokens) : 0;
        const double near =
            is_torchs(size) ? std::max({rounding, 1e-4, largest * 0x1p-23}) : 0x1p-18;
        const at::Tensor own =
            attend(queries, seen_keys, seen_values, {{}, false, {}, slopes}, 0.1);
        Looking biased;
        if (slopes.defined()) biased.mask = exact(place_bias(slopes, places.unsqueeze(0), type));
        const at::Tensor expected =
            plain_attend(exact(queries), exact(seen_keys), exact(seen_values), biased, 0.1);
        EXPECT_EQ(own.sizes(), expected.sizes());
        EXPECT_TRUE(at::allclose(exact(own), expected, 2 * std::max(near, rounding), near))
            << tokens << " tokens, " << heads << " heads of " << size;
        // However much room there is.
        const at::Tensor past = at::full({1}, tokens - 1, places.options());
        const at::Tensor replayed = attend(queries, keys, values, {{}, false, past, slopes}, 0.1);
        if (is_torchs(size)) {
          EXPECT_TRUE(at::allclose(replayed, own, 2 * near, near));
        } else {
          EXPECT_TRUE(replayed.equal(own));
        }
      }
    }
  }
}

// In one kernel, to the bits of one after another, whatever the room.
TEST_P(GpuAttention, KeepAndAttendIsToTurnToKeepAndToAttend) {
  at::manual_seed(12);
  for (const auto& [batch, heads, kv_heads, size] : kHeads) {
    for (const std::int64_t tokens : {1, 2, 63, 64, 65, 200, 250, 510, 1000}) {
      for (const std::int64_t turning : {0L, size / 2, size}) {
        const at::Tensor queries = some({batch, 1, heads, size}).transpose(1, 2);
        const at::Tensor added = some({batch, 1, 2 * kv_heads, size}).transpose(1, 2);
        const at::Tensor new_keys = added.narrow(1, 0, kv_heads);
        const at::Tensor new_values = added.narrow(1, kv_heads, kv_heads);
        Angles angles;
        const std::int64_t each = tokens % 2 == 0 ? batch : 1;  // of each sequence, or of all
        if (turning > 0) angles = {some({each, 1, turning}), some({each, 1, turning})};
        const at::Tensor keys = some({batch, kv_heads, tokens + 9, size});
        const at::Tensor values = some({batch, kv_heads, tokens + 9, size});
        const at::Tensor past = at::full({1}, tokens - 1, queries.options().dtype(at::kLong));
        // With slopes where nothing turns, as models are.
        const at::Tensor slopes = turning == 0 ? slopes_for(heads) : at::Tensor();
        std::vector<at::Tensor> found;
        for (const bool together : {false, true}) {
          for (const bool replayed : {false, true}) {
            const at::Tensor room_keys = keys.clone();
            const at::Tensor room_values = values.clone();
            const at::Tensor seen_keys = replayed ? room_keys : room_keys.narrow(2, 0, tokens);
            const at::Tensor seen_values =
                replayed ? room_values : room_values.narrow(2, 0, tokens);
            const Looking looking{{}, false, replayed ? past : at::Tensor(), slopes};
            const auto way = together ? keep_and_attend : keep_then_attend;
            const at::Tensor out = way(queries, {new_keys, new_values}, angles,
                                       {seen_keys, seen_values}, looking, 0.1);
            if (is_torchs(size) && replayed) continue;  // by another way
            found.push_back(at::cat({out.flatten(), room_keys.flatten(), room_values.flatten()}));
          }
        }
        for (const at::Tensor& one : found) {
          EXPECT_TRUE(one.equal(found.front()))
              << tokens << " tokens, " << heads << " heads of " << size << ", turning " << turning;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuAttention, testing::Values(at::kBFloat16, at::kFloat, at::kHalf),
                         [](const auto& each) { return at::toString(each.param); });

}  // namespace
}  // namespace haul::kernels
