#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/verb.h"
#include "core/base/file.h"
#include "haul/description.h"

namespace haul::cli {

void add_tree(CLI::App& app) {
  struct Flags {
    std::string model;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("tree", "Print a model's modules, parameters and buffers");
  verb->add_option("MODEL", flags->model, "a module tree file")->required();
  verb->add_flag("--json", flags->json, "print the tree file");
  verb->callback([flags] {
    const Description description =
        read_tree(core::read_file(flags->model, 1 * kGiB), flags->model);
    fmt::print("{}\n", write_tree(description));
  });
}

}  // namespace haul::cli
