#pragma once

// Makes a placement true: memory for every unit, its bytes brought there, and the model's own
// tensors changed to lie in it. One thread.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <c10/core/ScalarType.h>

#include "core/formats/model_files.h"
#include "haul/bytes.h"
#include "haul/torch/host_sharing.h"
#include "runtime/dispatch/placement.h"

namespace haul::runtime {

class WeightStore;

// Where the bytes of the units come from. `fill` and `stream` may be called by several threads.
class UnitSource {
 public:
  virtual ~UnitSource() = default;

  struct FileRange {
    std::filesystem::path file;
    Bytes offset = 0;
  };
  // Where a unit's bytes lie in a file just as they are needed.
  virtual std::optional<FileRange> file_of(std::size_t unit) const = 0;
  // Where floats lie in a file of which a cast alone makes a unit's.
  struct StoredFloats {
    FileRange range;
    Bytes size = 0;
    c10::ScalarType type = c10::ScalarType::Undefined;
  };
  virtual std::optional<StoredFloats> floats_of(std::size_t /*unit*/) const { return {}; }
  // Gives all bytes, piece after piece.
  virtual void stream(std::size_t unit,
                      const std::function<void(std::span<const std::byte>)>& sink) const = 0;
  // For weights that have to be written to the offload folder: equal only for equal bytes. Empty:
  // unknown, so nothing that lies there is trusted, and what is written serves this model alone.
  virtual std::string identity() const = 0;
  // Whether a unit's value is the model's own and not of the files.
  virtual bool is_own(std::size_t /*unit*/) const { return true; }
  // What is read of the files to give the `size` bytes of a unit.
  virtual Bytes read_for(std::size_t /*unit*/, Bytes size) const { return size; }
  // The files, and which part of them: equal only for equal ones.
  virtual std::string files() const { return {}; }
  // Whether a unit is to be left as it is: it has no value, or is where a CPU uses it.
  virtual bool leaves(std::size_t unit) const = 0;
};

// The store lives as long as the model does; of a model that stays as it was, no longer than what
// is returned.
// With `sharing`, what lies in RAM is there once for all of its processes.
std::shared_ptr<WeightStore> build(const PlacedModel& placed, const UnitSource& source,
                                   const DispatchOptions& options, HostSharing* sharing = nullptr);

}  // namespace haul::runtime
