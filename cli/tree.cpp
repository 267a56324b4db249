#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "cli/tree_view.h"
#include "cli/verb.h"
#include "core/base/big_json.h"
#include "core/base/file.h"
#include "core/describe/describe.h"
#include "core/hub/resolve.h"

namespace haul::cli {
namespace {

bool is_tree_file(std::string_view text, const std::string& source) {
  const core::BigJson document(text, source);
  return document.root().is_object() && document.root()["class"].is_string();
}

Description describe(const std::string& model, const core::DescribeOptions& options) {
  if (model.ends_with(".json") && std::filesystem::is_regular_file(model)) {
    const std::string text = core::read_file(model, 1 * kGiB);
    if (is_tree_file(text, model)) return read_tree(text, model);
  }
  core::ModelFiles files = core::resolve_model(model, {core::Need::kConfigOnly, ""});
  if (files.checkpoint.empty() && core::needs_headers(files, options)) {
    files = core::resolve_model(model, {core::Need::kHeaders, ""});
  }
  core::Described described = core::describe(files, options);
  for (const std::string& note : described.notes) fmt::print(stderr, "note: {}\n", note);
  return std::move(described.description);
}

}  // namespace

void add_tree(CLI::App& app) {
  struct Flags {
    std::string model;
    bool base_model = false;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("tree", "Print a model's modules, parameters and buffers");
  verb->add_option("MODEL", flags->model,
                   "a folder, a config.json, a checkpoint, a name on the hub or a tree file")
      ->required();
  verb->add_flag("--base-model", flags->base_model,
                 "the bare model, without the head that its config names");
  verb->add_flag("--json", flags->json, "print the tree file");
  verb->callback([flags] {
    core::DescribeOptions options;
    options.base_model = flags->base_model;
    const Description description = describe(flags->model, options);
    fmt::print("{}\n", flags->json ? write_tree(description) : tree_view(description));
  });
}

}  // namespace haul::cli
