#pragma once

// RAM for weights, brought in while torch's libraries start: the system clears each page, which
// takes as long as reading a weight into it. For runs whose command line says what goes to RAM.
// Called before any library's constructors have run, so that this uses the C library alone.

#include <cstddef>
#include <string_view>

namespace haul::cli {

// Of budgets like "0=8GiB, cpu = 16GiB" the first, which is then no longer among them.
struct BudgetText {
  std::string_view device;
  std::string_view size;  // empty: it is written otherwise
};
BudgetText take_budget(std::string_view* budgets);

struct EarlyMemory {
  std::byte* data = nullptr;  // a mapping, of huge pages where there are some
  std::size_t size = 0;
  std::size_t brought = 0;  // of it, from its beginning
};

struct MemoryWanted {
  std::size_t weights = 0;
  std::size_t in_ram = 0;  // of them; 0: too little to begin early, or not known
};

// Of a model in `folder`.
MemoryWanted memory_wanted(const char* folder, std::string_view budgets);

// By threads of its own; not after early_memory(). The mapping is as large as all weights, whatever
// a plan then leaves to RAM.
void begin_to_bring(const MemoryWanted& wanted);

// Ends it. What there is belongs to the caller.
EarlyMemory early_memory();

}  // namespace haul::cli
