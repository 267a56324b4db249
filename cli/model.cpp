#include "cli/model.h"

#include <filesystem>
#include <utility>

#include "core/base/big_json.h"
#include "core/base/file.h"
#include "core/hub/resolve.h"

namespace haul::cli {
namespace {

bool is_tree_file(std::string_view text, const std::string& source) {
  const core::BigJson document(text, source);
  return document.root().is_object() && document.root()["class"].is_string();
}

}  // namespace

DescribedModel describe_model(const std::string& model, const core::DescribeOptions& options) {
  DescribedModel result;
  if (model.ends_with(".json") && std::filesystem::is_regular_file(model)) {
    const std::string text = core::read_file(model, 1 * kGiB);
    if (is_tree_file(text, model)) {
      result.files.name = model;
      result.described.description = read_tree(text, model);
      return result;
    }
  }
  // A config tells the dtype of its weights well enough to spare a request for their headers.
  core::DescribeOptions shapes_alone = options;
  shapes_alone.dtype = core::WeightDtype::kFloat32;
  result.files = core::resolve_model(model, {core::Need::kConfigOnly, ""});
  if (result.files.checkpoint.empty() && core::needs_headers(result.files, shapes_alone)) {
    result.files = core::resolve_model(model, {core::Need::kHeaders, ""});
  }
  result.described = core::describe(result.files, options);
  return result;
}

}  // namespace haul::cli
