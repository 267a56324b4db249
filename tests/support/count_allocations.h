#pragma once

// A program that is built with count_allocations.cpp counts its calls of operator new.

#include <cstddef>

namespace haul::test {

// By all threads so far.
std::size_t allocation_count();

}  // namespace haul::test
