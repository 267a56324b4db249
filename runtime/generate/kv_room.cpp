#include "runtime/generate/kv_room.h"

#include <utility>

#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include "haul/error.h"
#include "runtime/dispatch/placement.h"
#include "runtime/tiers/arena.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {

struct KvRoom::Place {
  Place(c10::Device device, Bytes size, Ledger& ledger)
      : slab(device, size, ledger.reserve(Tag::kKv, size)), arena(size) {}

  Slab slab;
  Arena arena;
};

KvRoom::KvRoom(const Plan& plan, WeightStore& store) : store_(store) {
  if (plan.kv_in_ram) pinned_for_ = first_gpu(plan);
  for (const PlanDevice& planned : plan.devices) {
    if (planned.kv == 0) continue;
    const c10::Device device = real_device(planned.device);
    places_.push_back(std::make_shared<Place>(device, planned.kv, store.ledger(device)));
    pin(places_.back()->slab);
  }
}

KvRoom::~KvRoom() = default;

void KvRoom::pin(Slab& slab) const {
  if (pinned_for_ && slab.device().is_cpu()) slab.pin_for(pinned_for_->index());
}

at::Tensor KvRoom::take(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const c10::Device device = options.device();
  const Bytes bytes =
      static_cast<Bytes>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  for (const std::shared_ptr<Place>& place : places_) {
    if (place->slab.device() != device) continue;
    const std::optional<Bytes> at = place->arena.allocate(bytes);
    if (!at) continue;
    return at::from_blob(
        place->slab.data() + *at, sizes, [place, at](void*) { place->arena.free(*at); }, options,
        device);
  }
  try {
    const auto own =
        std::make_shared<Slab>(device, bytes, store_.ledger(device).reserve(Tag::kKv, bytes));
    pin(*own);
    return at::from_blob(
        own->data(), sizes, [own](void*) {}, options, device);
  } catch (Error& error) {
    error.add_context("more sequences, or longer ones, than were planned for");
    throw;
  }
}

}  // namespace haul::runtime
