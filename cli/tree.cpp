#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/model.h"
#include "cli/tree_view.h"
#include "cli/verb.h"

namespace haul::cli {

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
    const core::Described described = describe_model(flags->model, options).described;
    const Description& description = described.description;
    for (const std::string& note : described.notes) fmt::print(stderr, "note: {}\n", note);
    fmt::print("{}\n", flags->json ? write_tree(description) : tree_view(description));
  });
}

}  // namespace haul::cli
