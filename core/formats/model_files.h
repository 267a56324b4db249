#pragma once

// The local files of a model, found: what `core/hub` resolves a MODEL argument to and what
// `core/describe` describes.

#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/checkpoint.h"

namespace haul::core {

// A tensor as a header names it, known without the data (from a range request, say).
struct HeaderTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
};

struct ModelFiles {
  std::string name;                  // as the user gave it
  std::filesystem::path folder;      // where the model's files lie
  std::filesystem::path config;      // config.json; empty when there is none
  std::filesystem::path checkpoint;  // what Checkpoint::open takes; empty when weights are absent
  // The tensors of a checkpoint that was not fetched, where its headers were; else empty.
  std::vector<HeaderTensor> remote_tensors;
  std::string library;  // "transformers", "timm"; empty when unknown
};

}  // namespace haul::core
