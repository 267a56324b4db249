#pragma once

// Memory that a GPU, or RAM beside it, could not give, told with the plan's numbers.

#include <string_view>

#include <c10/util/Exception.h>

#include "haul/error.h"
#include "runtime/dispatch/placement.h"
#include "runtime/generate/state.h"

namespace haul::runtime {

bool is_lack_of_memory(std::string_view what);
// By another process, say, whose plan it is that was not kept.
bool is_told(std::string_view what);

// Throws Error(kResource) for a model whose plan the machine did not keep to.
[[noreturn]] void tell_lack_of_memory(const LoadedModel::State& state, std::string_view what);

// Runs the work of a model. What it has taken by then is free again when it fails.
template <typename Work>
auto telling_lack_of_memory(const LoadedModel::State& state, const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    if (!is_lack_of_memory(error.what_without_backtrace())) throw;
    tell_lack_of_memory(state, error.what_without_backtrace());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kResource || !is_lack_of_memory(error.what()) ||
        is_told(error.what()) || !first_gpu(state.plan)) {
      throw;
    }
    tell_lack_of_memory(state, error.what());
  }
}

}  // namespace haul::runtime
