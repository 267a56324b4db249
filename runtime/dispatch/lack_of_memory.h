#pragma once

// Memory that a GPU, or RAM beside it, could not give, told with the plan's numbers.

#include <span>
#include <string_view>

#include <c10/util/Exception.h>

#include "haul/error.h"
#include "haul/plan.h"

namespace haul::runtime {

// Whether a failure is one of memory, which has not been told yet: by another process, say, whose
// plan it is that was not kept.
bool is_lack_of_memory(const c10::Error& error);
bool is_lack_of_memory(const Error& error, std::span<const PlanDevice> planned);

// Throws Error(kResource) for what was loaded by the plan of these devices, which the machine did
// not keep to.
[[noreturn]] void tell_lack_of_memory(std::string_view name, std::span<const PlanDevice> planned,
                                      std::string_view what);

// Runs the work of a model. What it has taken by then is free again when it fails.
template <typename Work>
auto telling_lack_of_memory(std::string_view name, std::span<const PlanDevice> planned,
                            const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    if (!is_lack_of_memory(error)) throw;
    tell_lack_of_memory(name, planned, error.what_without_backtrace());
  } catch (const Error& error) {
    if (!is_lack_of_memory(error, planned)) throw;
    tell_lack_of_memory(name, planned, error.what());
  }
}

}  // namespace haul::runtime
