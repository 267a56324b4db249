#pragma once

// Where this is linked in, a machine with one GPU has two: both numbers are the first one. torch
// and haul keep streams, pools of memory, budgets and current devices by number, and copy from one
// to the other.

namespace haul::test {

// Copies from one number to the other so far.
int copies_between_gpus();

}  // namespace haul::test
