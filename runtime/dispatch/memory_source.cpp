#include "runtime/dispatch/memory_source.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/dispatch/build.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/lack_of_memory.h"
#include "runtime/dispatch/placement.h"

namespace haul::runtime {
namespace {

// The values that a model has already.
class MemorySource final : public UnitSource {
 public:
  explicit MemorySource(const std::vector<Unit>& units) : units_(units) {
    // Without a GPU, what is in RAM and is to be there may stay.
    stay_ = std::all_of(units.begin(), units.end(),
                        [](const Unit& unit) { return unit.runs_on.is_cpu(); });
  }

  std::optional<FileRange> file_of(std::size_t) const override { return std::nullopt; }

  void stream(std::size_t unit,
              const std::function<void(std::span<const std::byte>)>& sink) const override {
    const at::Tensor& tensor = units_[unit].tensors.front();
    if (tensor.is_meta()) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}' has no value yet", units_[unit].name),
                  "load a checkpoint into the model");
    }
    // All of the memory, as it is: as bytes, and from another device first to the host.
    const c10::Storage& storage = tensor.storage();
    const at::Tensor bytes =
        tensor_on(storage, c10::kByte, {static_cast<std::int64_t>(storage.nbytes())}, {1}, 0, false)
            .to(c10::kCPU);
    sink({static_cast<const std::byte*>(bytes.const_data_ptr()), storage.nbytes()});
  }

  std::string identity() const override { return {}; }

  bool leaves(std::size_t unit) const override {
    return stay_ && units_[unit].tensors.front().is_cpu();
  }

 private:
  const std::vector<Unit>& units_;
  bool stay_;
};

}  // namespace

std::shared_ptr<WeightStore> place_values(const ModelTensors& model, const Placement& placement,
                                          const DispatchOptions& options, bool whole) {
  std::vector<c10::ScalarType> types;
  for (const ModelTensor& item : model.all) types.push_back(item.tensor.scalar_type());
  PlacedModel placed = place_units(model, types, Memory::kKept, placement, options);
  placed.whole = whole;
  return telling_lack_of_memory("the model", placed.plan.devices,
                                [&] { return build(placed, MemorySource(placed.units), options); });
}

}  // namespace haul::runtime
