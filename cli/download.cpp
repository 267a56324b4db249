#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/verb.h"
#include "core/base/json.h"
#include "core/hub/hub_model.h"

namespace haul::cli {
namespace {

std::string as_json(const core::Snapshot& snapshot) {
  core::Json files = core::Json::array();
  for (const core::FetchedFile& file : snapshot.files) {
    files.push_back({{"name", file.name},
                     {"path", file.path.string()},
                     {"size", file.size},
                     {"fetched", file.fetched}});
  }
  core::Json skipped = core::Json::array();
  for (const core::HubFile& file : snapshot.skipped) skipped.push_back(file.name);
  const core::Json document{{"model", snapshot.repository},
                            {"revision", snapshot.revision},
                            {"commit", snapshot.commit},
                            {"folder", snapshot.folder.string()},
                            {"files", files},
                            {"skipped", skipped}};
  return document.dump(2, ' ', false, core::Json::error_handler_t::replace);
}

void tell_skipped(const core::Snapshot& snapshot) {
  if (snapshot.skipped.empty()) return;
  Bytes bytes = 0;
  std::string names;
  for (const core::HubFile& file : snapshot.skipped) {
    bytes += file.size.value_or(0);
    names += (names.empty() ? "" : ", ") + file.name;
  }
  fmt::print(stderr, "skipped, the same weights in another format ({}): {}\n", format_bytes(bytes),
             names);
}

}  // namespace

void add_download(CLI::App& app) {
  struct Flags {
    std::string name;
    core::SnapshotOptions options;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("download", "Fetch a model from the hub, print its folder");
  verb->add_option("NAME", flags->name, "org/name, name or org/name@revision")->required();
  verb->add_option("--include", flags->options.include, "fetch only what matches, like '*.json'")
      ->expected(1)
      ->take_all();
  verb->add_option("--exclude", flags->options.exclude, "fetch nothing that matches")
      ->expected(1)
      ->take_all();
  verb->add_option("--revision", flags->options.revision, "a branch, tag or commit");
  verb->add_flag("--json", flags->json, "print the files as JSON");
  verb->callback([flags] {
    const core::Snapshot snapshot = core::download_snapshot(flags->name, flags->options);
    tell_skipped(snapshot);
    fmt::print("{}\n", flags->json ? as_json(snapshot) : snapshot.folder.string());
  });
}

}  // namespace haul::cli
