#pragma once

// The memory of KV caches: on each device as much as the plan gives, taken once and used again by
// every generation. What finds no place in it gets memory of its own, as long as the tier has some
// left. One thread.

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "haul/plan.h"
#include "runtime/dispatch/weight_store.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {

class KvRoom {
 public:
  // The store is that of the model, and gives the accounts.
  KvRoom(const Plan& plan, WeightStore& store);
  ~KvRoom();

  // Its memory is free again when the last tensor on it goes; the tensors may outlive the room.
  // Throws Error(kResource) when there is not enough.
  at::Tensor take(at::IntArrayRef sizes, const at::TensorOptions& options);

 private:
  struct Place;

  void pin(Slab& slab) const;

  WeightStore& store_;
  std::optional<c10::Device> pinned_for_;  // what lies in RAM is copied to this GPU
  std::vector<std::shared_ptr<Place>> places_;
};

}  // namespace haul::runtime
