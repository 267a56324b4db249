#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "cli/tree_view.h"
#include "cli/verb.h"
#include "core/base/big_json.h"
#include "core/base/file.h"
#include "core/describe/describe.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

bool is_tree_file(std::string_view text, const std::string& source) {
  const core::BigJson document(text, source);
  return document.root().is_object() && document.root()["class"].is_string();
}

core::ModelFiles local_files(const std::string& model) {
  core::ModelFiles files;
  files.name = model;
  const std::filesystem::path path = model;
  files.config = std::filesystem::is_directory(path) ? path / "config.json" : path;
  files.folder = files.config.parent_path();
  return files;
}

Description describe(const std::string& model, bool base_model) {
  if (model.ends_with(".json") && std::filesystem::is_regular_file(model)) {
    const std::string text = core::read_file(model, 1 * kGiB);
    if (is_tree_file(text, model)) return read_tree(text, model);
  }
  core::DescribeOptions options;
  options.base_model = base_model;
  return core::describe(local_files(model), options).description;
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
  verb->add_option("MODEL", flags->model, "a folder, a config.json or a module tree file")
      ->required();
  verb->add_flag("--base-model", flags->base_model,
                 "the bare model, without the head that its config names");
  verb->add_flag("--json", flags->json, "print the tree file");
  verb->callback([flags] {
    const Description description = describe(flags->model, flags->base_model);
    fmt::print("{}\n", flags->json ? write_tree(description) : tree_view(description));
  });
}

}  // namespace haul::cli
