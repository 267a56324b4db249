#pragma once

// Rows of a table that the CPU uses and that lies on disk: of a large one a pass needs few, so they
// are read from there, and the table never comes. Any thread.

#include <ATen/core/Tensor.h>

namespace haul::runtime {

// Whether the table is such a weight.
bool can_look_up(const at::Tensor& table);
// What aten::embedding of the table and the ids gives. Throws as that does for ids that are no
// whole numbers or that the table does not have, and as the disk reader does.
at::Tensor look_up(const at::Tensor& table, const at::Tensor& ids);

// Copies all of such a table, piece after piece, into ordinary memory of the CPU; false where it is
// none, or would have to be changed on the way.
bool copy_table(const at::Tensor& table, const at::Tensor& to);

}  // namespace haul::runtime
