#pragma once

// The GPUs that this process may use, their memory, and copies to them. In a build without the CUDA
// part, and on a machine without a GPU, there are none, and what needs one throws
// Error(kUnsupported). May be called from any thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "haul/bytes.h"

namespace haul::runtime {

struct Gpu {
  int index = 0;
  std::string name;
  Bytes total = 0;
  Bytes free = 0;  // as the driver reports it now
};

// Whether this build can use a GPU at all.
bool built_for_gpus();

std::vector<Gpu> gpus();
// Bytes that it has free now.
Bytes free_of_gpu(int index);

// Lets torch's pools of GPU memory grow in place: else they keep pieces of every size that was ever
// asked for. By pieces of 12 MiB, the smallest of whole pages that torch takes, because plans
// cannot say how much of the last is used. What the environment or the program has set for them
// stays.
void let_pools_grow();

// All throw Error(kResource) with the driver's reason.
void* allocate_on_gpu(int index, Bytes size);
void free_on_gpu(int index, void* memory) noexcept;
// Makes host memory fit for copies to this GPU, or the current one, that run by themselves. All of
// it has pages then: where it may have none yet they are made by all cores first.
enum class Pages { kFresh, kFilled };
void pin(void* memory, Bytes size, std::optional<int> index = std::nullopt,
         Pages pages = Pages::kFresh);
void unpin(void* memory) noexcept;

// A point in a GPU's work. Copies of it are the same point.
class GpuPoint {
 public:
  GpuPoint() = default;  // long past
  struct Event;
  explicit GpuPoint(std::shared_ptr<Event> event) : event_(std::move(event)) {}
  const std::shared_ptr<Event>& event() const { return event_; }

 private:
  std::shared_ptr<Event> event_;
};

// What the caller's current stream on this GPU has been given so far.
GpuPoint point_of_current_stream(int index);
// Work given to the caller's current stream from now on comes after the point.
void current_stream_waits(int index, const GpuPoint& point);
bool is_past(const GpuPoint& point);
// Blocks the caller.
void wait_for(const GpuPoint& point);
// The same at an end, where nobody can be told: a GPU that has failed does no more, and says so at
// the next call.
void settle(const GpuPoint& point) noexcept;
// For waits of milliseconds: leaves the core to others. Of a GPU that has failed the next call
// tells.
void rest_until(const GpuPoint& point);

// Of 16 or 32 bits: torch rounds those of 64 twice.
struct FloatCast {
  c10::ScalarType from = c10::ScalarType::Undefined;
  c10::ScalarType to = c10::ScalarType::Undefined;

  bool operator==(const FloatCast&) const = default;
};

// A stream of copies beside the computation. Its functions may be called by several threads.
class CopyStream {
 public:
  explicit CopyStream(int index);
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  ~CopyStream();

  void wait(const GpuPoint& point);
  // Between pinned memory and the GPU, either way.
  void copy(void* to, const void* from, Bytes size);
  // `count` rows of so many bytes, which lie `to_step` and `from_step` bytes apart.
  void copy_rows(void* to, Bytes to_step, const void* from, Bytes from_step, Bytes width,
                 Bytes count);
  // `count` floats of pinned memory become others on the GPU, which reads them where they are.
  void cast(void* to, const void* from, const FloatCast& types, Bytes count);
  GpuPoint point();
  // Runs a function on one of the driver's threads when the copies so far have ended. It must not
  // call into the GPU.
  void then(void (*function)(void*), void* context);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace haul::runtime
