#pragma once

// Fresh memory by pages. The system clears each one when it is first touched, one at a time: huge
// ones come in far fewer steps, and a disk reads straight to them with less to look up. Where it
// refuses, nothing changes. From any thread.

#include <cstddef>

namespace haul::core {

// For memory that was not touched yet: huge pages where whole ones fit, none beyond the range.
void prefer_huge_pages(void* memory, std::size_t bytes);

// A multiple of this is where huge pages of memory that processes share may begin, both in the
// memory and in their addresses.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// The same for memory that processes share, whose pages the system leaves small if nobody joins
// them: brings all whole ones in, and changes no byte. May be called by several processes.
void join_shared_pages(void* memory, std::size_t bytes);

// Brings whole pages in before they are needed; may be called while others write to them.
void bring_pages(void* memory, std::size_t bytes);

}  // namespace haul::core
