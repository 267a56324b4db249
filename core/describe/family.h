#pragma once

// A family of models: the config's model_type, the classes that its checkpoints name, and the
// function that turns a config into the tree of one of them. The registry lists all families;
// adding one takes its file and its lines in registry.cpp.

#include <cstdint>
#include <span>
#include <string_view>

#include "core/describe/config_reader.h"
#include "haul/description.h"

namespace haul::core {

// Where it is written which weights are tied.
enum class Ties {
  kInConfig,
  kInCheckpoint,  // the config does not tell; a checkpoint that holds them apart does
};

// A linear layer of which processes that share a model have a part each: some of its outputs, or
// some of its inputs.
enum class CutSide { kOutputs, kInputs };
struct CutRule {
  std::string_view module;  // the end of its name: "mlp.up_proj"
  CutSide side = CutSide::kOutputs;
  std::int64_t groups = 1;  // equal pieces that are cut each by itself
};

struct Family {
  std::string_view model_type;                // empty: found by its classes alone
  std::span<const std::string_view> classes;  // the bare model first
  // The bare model's name inside the classes with a head: "model", "transformer", "bert".
  std::string_view base_prefix;
  // Builds float32 parameters; the caller sets `architecture`. Throws Error for bad values.
  Description (*describe)(const ConfigReader& config, std::string_view class_name);
  Ties ties = Ties::kInConfig;
  // Empty: its layers cannot be shared by processes. What is not named here, each has whole.
  std::span<const CutRule> cuts = {};
};

// The family that has this class or, when the class is empty, this model_type; else nullptr.
const Family* find_family(std::string_view class_name, std::string_view model_type);

}  // namespace haul::core
