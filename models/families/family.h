#pragma once

// What a family's file gives to the registry.

#include <memory>
#include <span>
#include <string_view>

#include "models/families/model.h"

namespace haul::models {

struct Family {
  std::span<const std::string_view> architectures;
  std::shared_ptr<Model> (*make)(const core::ConfigReader& config, const Description& description);
};

}  // namespace haul::models
