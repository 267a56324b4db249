#pragma once

// The MODEL argument of the verbs that only decide: found, and described.

#include <string>

#include "core/describe/describe.h"
#include "core/formats/model_files.h"

namespace haul::cli {

struct DescribedModel {
  core::ModelFiles files;  // of a module tree file its name alone
  core::Described described;
};

// A module tree file, or whatever resolve_model takes. Of a model on the hub no weights are
// fetched: its config.json and, where the config does not tell all, the headers of its checkpoint.
DescribedModel describe_model(const std::string& model, const core::DescribeOptions& options);

}  // namespace haul::cli
