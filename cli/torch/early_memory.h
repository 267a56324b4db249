#pragma once

// RAM for weights, brought in while torch's libraries start: the system clears each page, which
// takes as long as reading a weight into it. For runs whose command line says what goes to RAM.
// Called before any library's constructors have run, so that this uses the C library alone.

#include <cstddef>
#include <string_view>

namespace haul::cli {

struct EarlyMemory {
  std::byte* data = nullptr;  // a mapping, of huge pages where there are some
  std::size_t size = 0;
  std::size_t brought = 0;  // of it, from its beginning
};

// Of budgets like 0=8GiB,cpu=16GiB, what a model in `folder` leaves to RAM. 0: little, or not
// known.
std::size_t memory_wanted(const char* folder, std::string_view budgets);

// By threads of its own; not after early_memory().
void begin_to_bring(std::size_t size);

// Ends it. What there is belongs to the caller.
EarlyMemory early_memory();

}  // namespace haul::cli
