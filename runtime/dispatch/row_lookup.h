#pragma once

// Rows of a table that the CPU uses and that lies elsewhere: of a large one a pass needs few, so
// they are read from there, and the table never comes. Any thread.

#include <optional>

#include <ATen/core/Tensor.h>

namespace haul::runtime {

// What aten::embedding of the table and the ids gives; nothing where the table is no such weight.
// Throws as that does for ids that the table does not have, and as the disk reader does.
std::optional<at::Tensor> look_up(const at::Tensor& table, const at::Tensor& ids);

}  // namespace haul::runtime
