#pragma once

// What `haul map` and `haul plan` share: the flags that say what is placed where, and the map that
// they ask for.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "haul/description.h"
#include "haul/device_map.h"

namespace haul::cli {

struct PlacementFlags {
  std::string model;
  std::string tree;
  std::string device_map = "auto";
  std::string max_memory;
  bool max_memory_given = false;
  std::string planner = "haul";
  std::vector<std::string> no_split;
  std::string dtype;
  std::vector<std::string> special_dtypes;
  bool offload_buffers = false;
  bool fallback_allocation = false;
  bool no_clean = false;
};

struct DeviceRow {
  Device device;
  std::optional<Bits> budget;  // nothing: no limit
  Bits weights = 0;
  Bits reserve = 0;  // room kept for weights that arrive when they are needed

  Bits free() const {
    const Bits used = weights + reserve;
    return budget && *budget > used ? *budget - used : 0;
  }
};

struct MapReport {
  DeviceMap map;
  MaxMemory memory;  // after balancing
  std::vector<std::string> warnings;
  std::vector<DeviceRow> devices;
  std::vector<Budget> shortfall;
  std::string peer_failure;
};

void add_placement_flags(CLI::App& verb, PlacementFlags* flags);
Description load_description(const PlacementFlags& flags);
MapOptions map_options(const PlacementFlags& flags, const Description& description);
MapReport make_map(const PlacementFlags& flags);

}  // namespace haul::cli
