#pragma once

// What `haul map` and `haul plan` share: the flags that say what is placed where, and the plan that
// they ask for.

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "haul/plan.h"

namespace haul::cli {

struct PlacementFlags {
  std::string model;
  std::string tree;
  std::string device_map = "auto";
  std::optional<std::string> max_memory;
  std::string planner = "haul";
  std::vector<std::string> no_split;
  std::string dtype;
  std::vector<std::string> special_dtypes;
  bool offload_buffers = false;
  bool fallback_allocation = false;
  bool no_clean = false;
  std::string context;
  std::int64_t batch = 1;
  std::string keep_free;       // as a max memory
  std::string offload_folder;  // where weights on disk go; empty: they are read where they lie
};

void add_placement_flags(CLI::App& verb, PlacementFlags* flags);

// Describes the model, asks the machine where no budgets are given, and plans. Throws Error for
// flags that make no sense and for a given map that leaves weights without a device.
Plan make_plan(const PlacementFlags& flags, const Profile& profile);

}  // namespace haul::cli
