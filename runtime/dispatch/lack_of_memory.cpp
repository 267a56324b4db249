#include "runtime/dispatch/lack_of_memory.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "core/place/words.h"
#include "runtime/tiers/gpu.h"

namespace haul::runtime {
namespace {

constexpr std::string_view kTold = "not enough memory: ";

std::string words_of(const PlanDevice& device) {
  return fmt::format("{}: planned were {}{}: weights {}, KV cache {}, activations {}, slots {}",
                     core::device_words(device.device), format_bytes(device.used()),
                     device.budget ? fmt::format(" of {}", format_bytes(*device.budget)) : "",
                     format_bytes(device.weights + device.margins), format_bytes(device.kv),
                     format_bytes(device.activations), format_bytes(device.slots));
}

// Asking a GPU takes memory of it, too.
std::string free_now(int index) {
  try {
    return format_bytes(free_of_gpu(index));
  } catch (const std::exception&) {
    return "not known";
  }
}

// By its words: a library, or a thread whose failure another one throws, has no type for it.
bool says_lack_of_memory(std::string_view what) {
  constexpr std::array<std::string_view, 6> kWords = {
      "out of memory",                                           // CUDA, torch
      "ALLOC_FAILED",          "CUBLAS_STATUS_NOT_INITIALIZED",  // CUDA's libraries
      "can't allocate memory",                                   // torch, of RAM
      "cannot allocate",       "do not fit"};                    // slabs, ledgers
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view words) {
    return what.find(words) != std::string_view::npos;
  });
}

}  // namespace

bool is_lack_of_memory(const c10::Error& error) {
  return says_lack_of_memory(error.what_without_backtrace());
}

bool is_lack_of_memory(const Error& error, std::span<const PlanDevice> planned) {
  const std::string_view what = error.what();
  return error.kind() == ErrorKind::kResource && says_lack_of_memory(what) &&
         what.find(kTold) == std::string_view::npos &&
         std::any_of(planned.begin(), planned.end(), [](const PlanDevice& device) {
           return device.device.is_accelerator() && device.used() > 0;
         });
}

void tell_lack_of_memory(std::string_view name, std::span<const PlanDevice> planned,
                         std::string_view what) {
  std::string message = fmt::format("{}: {}{}", name, kTold, what.substr(0, what.find('\n')));
  for (const PlanDevice& device : planned) {
    if (device.device == kDiskDevice || device.used() == 0) continue;
    message += "; " + words_of(device);
    if (!device.device.is_accelerator()) continue;
    message += fmt::format(", the driver's {}; free: {}", format_bytes(device.context),
                           free_now(device.device.index));
  }
  throw Error(ErrorKind::kResource, message,
              "another program may hold some of it; or ask for less: --max-memory, a smaller "
              "--batch, a shorter --context");
}

}  // namespace haul::runtime
