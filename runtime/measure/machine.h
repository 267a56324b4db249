#pragma once

// Measures what the planner's predictions rest on, by the code that will do the work: how fast this
// machine reads RAM and disk, multiplies, and feeds its GPUs. Takes up to half a minute, meanwhile
// some 4 GB of RAM and of disk, and up to 2 GB of each GPU. One thread; the machine should have
// nothing else to do.

#include <filesystem>
#include <functional>
#include <string>

#include <c10/core/Device.h>

#include "haul/bytes.h"
#include "haul/profile.h"

namespace haul::runtime {

struct MeasureOptions {
  std::filesystem::path folder;  // on the disk that counts
  std::function<void(const std::string&)> on_step = [](const std::string&) {};
  // Runs a model in a process of its own that may have so much of GPU 0, and tells what its plan
  // has there, the driver's part left out. Without it that part is not measured.
  std::function<Bytes(const std::filesystem::path& model, Bytes gpu)> run_apart;
};

// Throws Error(kResource) where memory or disk is missing for it.
Profile measure_machine(const MeasureOptions& options);

// Bytes a second that all of a device's cores read from its memory and add up: the most that
// decoding can get.
double read_bandwidth(c10::Device device);

// Bytes a second from pinned RAM to a GPU, in pieces of this size.
double link_bandwidth(int gpu, Bytes piece);

// Bytes a second with which a file comes from its disk, past the page cache.
double disk_bandwidth(const std::filesystem::path& file);

}  // namespace haul::runtime
