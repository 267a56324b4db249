#pragma once

// Refuses a template that names a filter or a test that does not exist, before it is rendered.
// Inside of a condition such a name is refused only when it is reached, so that a template may ask
// whether a filter exists before it uses it.

#include "tokenizers/template_tree.h"

namespace haul::tokenizers::jinja {

// Throws Error(kCorrupt) whose message begins with the line.
void check_names(const Body& body);

}  // namespace haul::tokenizers::jinja
