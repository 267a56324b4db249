#pragma once

// How fast models run, by running some: decoders of random weights, a large one and a small one,
// whose difference tells what a call takes beside the bytes that it reads, one with hardly any, and
// one whose weights lie by input.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "core/base/json.h"
#include "haul/device_map.h"
#include "haul/plan.h"

namespace haul::runtime {

// As Profile has them.
struct ModelSpeed {
  double bandwidth = 0;
  double call = 0;
  double by_input = 0;
};
struct HelpSpeed {
  double bandwidth = 0;
  double link = 0;
  double call = 0;
};

class MeasuredModels {
 public:
  // Writes their files, up to 4.5 GB, which go with it. `large`: for GPUs.
  MeasuredModels(const std::filesystem::path& folder, bool large);

  // Where all of a model lies on a device that computes it.
  ModelSpeed resident(Device device) const;
  // Where layers lie in RAM for GPU 0, and the CPU multiplies some rows while the link, which gives
  // so much alone, brings the others. Nothing where the GPU's driver is too old for it.
  std::optional<HelpSpeed> helped(double link) const;
  // The folder of the large one.
  const std::filesystem::path& large() const { return large_.folder; }

 private:
  struct Folder {
    explicit Folder(std::filesystem::path where) : path(std::move(where)) {}
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder();

    std::filesystem::path path;
  };
  struct Model {
    std::filesystem::path folder;
    Description description;
    double bytes = 0;  // of its layers
    double calls = 0;  // modules with weights in them
  };

  static Model make(const std::filesystem::path& folder, const core::Json& config,
                    const std::string& layers, double calls);
  static Model decoder(const std::filesystem::path& folder, std::int64_t width, std::int64_t inner,
                       std::int64_t layers);
  // Many layers where there is a GPU: CPUs of such machines have caches of hundreds of MB.
  static Model by_input(const std::filesystem::path& folder, std::int64_t layers);
  HelpSpeed from_the_cpu(const Plan& large, const Plan& small, double share) const;

  Folder folder_;  // goes also where a model could not be made
  Model large_;
  Model small_;
  Model least_;  // of which a token takes what every token takes
  Model by_input_;
};

}  // namespace haul::runtime
