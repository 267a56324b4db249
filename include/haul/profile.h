#pragma once

// How fast a machine moves and computes: what the planner's predictions rest on. Defaults stand in
// until the machine has been measured; the file is JSON with a version.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "haul/bytes.h"

namespace haul {

inline constexpr int kProfileVersion = 1;

struct GpuProfile {
  double memory_bandwidth = 1.5e12;  // bytes a second
  double link_bandwidth = 2.5e10;    // from pinned RAM
  double operations = 1.5e14;        // a second, in half precision
  double call = 0;                   // seconds of a layer's product beside the bytes that it reads
  double by_input = 0;  // seconds more of one whose weight lies by input, as GPT-2 stores it
  // Seconds beside the bytes for each number of a head of each token that is looked at.
  double attended = 0;
  // What a process has of its memory beside what it asks for: the driver's, and that of kernels;
  // and what is added to it where passes are recorded, so as to be replayed.
  Bytes context = 704 * kMiB;
  Bytes recorded = 64 * kMiB;

  bool operator==(const GpuProfile&) const = default;
};

struct Profile {
  GpuProfile gpu;                  // of every GPU that is not listed
  std::map<int, GpuProfile> gpus;  // by device number
  double ram_bandwidth = 6e10;
  // Of weights that the CPU multiplies while a link brings others (0: it cannot), what the link
  // gives meanwhile (0: as ever), and the seconds for which a call in such a layer keeps the CPU
  // waiting.
  double help_bandwidth = 3e10;
  double help_link = 0;
  double help_call = 0;
  double cpu_operations = 1e12;
  double cpu_call = 0;  // seconds, as of a GPU's
  double cpu_by_input = 0;
  double disk_bandwidth = 3e9;
  double hop = 2e-5;  // seconds to hand the work from one device to another
  bool measured = false;

  const GpuProfile& of_gpu(int index) const;
  bool operator==(const Profile&) const = default;
};

// Throws Error(kCorrupt) that names the source and the key: another version, an unknown key, a
// number that is not positive and finite (those of help, of calls and of bytes may be 0). Keys that
// are missing keep their defaults.
Profile read_profile(std::string_view json, std::string_view source);
std::string write_profile(const Profile& profile);

// $HAUL_PROFILE, else haul/profile.json under $XDG_CACHE_HOME or ~/.cache.
std::filesystem::path profile_path();
// The file at profile_path() where there is one, else the defaults.
Profile load_profile();

}  // namespace haul
