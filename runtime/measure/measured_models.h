#pragma once

// How fast models run, by running some: decoders of random weights, a large one and a small one,
// whose difference tells what a call takes beside the bytes that it reads.

#include <filesystem>
#include <optional>

#include "haul/device_map.h"
#include "haul/plan.h"

namespace haul::runtime {

// As Profile has them.
struct ModelSpeed {
  double bandwidth = 0;
  double call = 0;
};
struct HelpSpeed {
  double bandwidth = 0;
  double link = 0;
  double call = 0;
};

class MeasuredModels {
 public:
  // Writes their files, up to 2 GB, and removes them at its end. `large`: for GPUs.
  MeasuredModels(const std::filesystem::path& folder, bool large);
  MeasuredModels(const MeasuredModels&) = delete;
  MeasuredModels& operator=(const MeasuredModels&) = delete;
  ~MeasuredModels();

  // Where all of a model lies on a device that computes it.
  ModelSpeed resident(Device device) const;
  // Where layers lie in RAM for GPU 0, and the CPU multiplies some rows while the link, which gives
  // so much alone, brings the others. Nothing where the GPU's driver is too old for it.
  std::optional<HelpSpeed> helped(double link) const;

 private:
  struct Model {
    std::filesystem::path folder;
    Description description;
    double bytes = 0;  // of its layers
    double calls = 0;  // modules with weights in them
  };

  static Model make(const std::filesystem::path& folder, std::int64_t width, std::int64_t inner,
                    std::int64_t layers);
  HelpSpeed from_the_cpu(const Plan& large, const Plan& small, double share) const;

  std::filesystem::path folder_;
  Model large_;
  Model small_;
  Model least_;  // of which a token takes what every token takes
};

}  // namespace haul::runtime
