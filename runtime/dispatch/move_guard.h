#pragma once

namespace haul::runtime {

// From now on, giving a tensor of a dispatched model other data (which is how a module is moved or
// converted) is an Error that says what to do instead. May be called again.
void guard_moves();

}  // namespace haul::runtime
