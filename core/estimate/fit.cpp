#include "haul/fit.h"

#include <algorithm>
#include <cmath>

#include "haul/module_sizes.h"

namespace haul {
namespace {

bool can_be_offloaded(Tag tag) {
  return tag == Tag::kWeights || tag == Tag::kMasterWeights || tag == Tag::kGradients ||
         tag == Tag::kOptimizer;
}

}  // namespace

double largest_layer_share(const Description& description) {
  const MaximumSizes sizes = calculate_maximum_sizes(description);
  if (sizes.total == 0) return 0;
  return static_cast<double>(sizes.largest_layer.bits) / static_cast<double>(sizes.total);
}

Verdict judge(std::span<const TableEntry> table, double layer_share, Bytes budget) {
  Verdict verdict;
  verdict.budget = budget;
  verdict.needed = total_bytes(table);
  if (verdict.needed <= budget) {
    verdict.free = budget - verdict.needed;
    return verdict;
  }
  Bytes movable = 0;
  for (const TableEntry& entry : table) {
    if (can_be_offloaded(entry.tag)) movable += entry.bytes;
  }
  const double slot = std::ceil(layer_share * static_cast<double>(movable));
  const Bytes slots = std::min(movable, 2 * static_cast<Bytes>(slot));
  const Bytes least = verdict.needed - movable + slots;
  if (least > budget) {
    verdict.fit = Fit::kDoesNotFit;
    verdict.missing = least - budget;
    return verdict;
  }
  verdict.fit = Fit::kFitsWithOffload;
  verdict.offloaded = movable - (budget - least);
  return verdict;
}

}  // namespace haul
