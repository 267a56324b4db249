#include "cli/model.h"

#include <filesystem>
#include <utility>

#include "core/base/big_json.h"
#include "core/base/file.h"
#include "core/hub/resolve.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr Bytes kMaxTreeFile = 1 * kGiB;

// Config files are small and begin with other keys; only a file that names a class is a tree.
bool is_tree_file(std::string_view text, const std::string& source) {
  const core::BigJson document(text, source);
  return document.root().is_object() && document.root()["class"].is_string();
}

bool has_weights(const core::ModelFiles& files) {
  return !files.checkpoint.empty() || !files.remote_tensors.empty();
}

bool is_described_by_config(const core::ModelFiles& files, const core::DescribeOptions& options) {
  return !files.config.empty() && core::knows_architecture(core::read_json(files.config), options);
}

// Checkpoints of encoder-decoder models may carry weights of their own under a tied name.
bool may_untie(const Description& description) {
  return description.dimensions && description.dimensions->encoder_layers > 0 &&
         !description.tied.empty();
}

}  // namespace

DescribedModel describe_model(const std::string& model, const core::DescribeOptions& options) {
  DescribedModel result;
  if (model.ends_with(".json") && std::filesystem::is_regular_file(model)) {
    const std::string text = core::read_file(model, kMaxTreeFile);
    if (is_tree_file(text, model)) {
      result.files.name = model;
      result.described.description = read_tree(text, model);
      return result;
    }
  }
  const auto resolve = [&](core::Need need) {
    core::ResolveOptions request;
    request.need = need;
    return core::resolve_model(model, request);
  };
  result.files = resolve(core::Need::kConfigOnly);
  if (!has_weights(result.files) && !is_described_by_config(result.files, options)) {
    result.files = resolve(core::Need::kHeaders);
  }
  result.described = core::describe(result.files, options);
  if (has_weights(result.files) || !may_untie(result.described.description)) return result;
  try {
    result.files = resolve(core::Need::kHeaders);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kResource) throw;
    result.notes.push_back(
        "the checkpoint's headers could not be read, so the config's ties are taken as they are");
  }
  if (has_weights(result.files)) result.described = core::describe(result.files, options);
  return result;
}

}  // namespace haul::cli
