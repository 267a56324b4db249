#pragma once

// A plan: where everything of a model lies, what runs where, and how long that takes. It is a
// value: it prints, saves, loads, compares and explains itself. Pure, any thread. That a model does
// not fit is an answer (fits == false, with what is short), not an error.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/device_map.h"
#include "haul/dtype.h"
#include "haul/profile.h"

namespace haul {

inline constexpr int kPlanVersion = 1;

enum class Planner : std::uint8_t { kHaul, kAccelerate };

// Rows of input (a token of each sequence) with which any CPU is taken to keep up with its RAM.
inline constexpr std::int64_t kFewRows = 4;
// The most up to which a fast one helps a GPU with weights in RAM.
inline constexpr std::int64_t kMostHelpedRows = 32;
// What is read at once of a disk that is to be as fast as it can.
inline constexpr Bytes kReadAhead = 128 * kMiB;

struct PlanRequest {
  Planner planner = Planner::kHaul;
  MapMode mode = MapMode::kAuto;
  MaxMemory memory;
  // The budgets are what the machine has free: Accelerate's planner then keeps a tenth back.
  bool memory_from_machine = false;
  MapOptions options;
  // A map to take as it is, instead of making one.
  std::optional<DeviceMap> given_map;
  // Tokens that each sequence can grow to. Nothing: weights and room for streaming alone count.
  std::optional<std::int64_t> context;
  std::int64_t batch = 1;
  // Of them, those that begin with a prompt of their own; nothing: all. Beams share one.
  std::optional<std::int64_t> prompts;
  Dtype dtype = Dtype::kBF16;  // of KV cache and activations
  // The room around each tensor counts too (haul/tensor_memory.h), and buffers lie where they are
  // used, as in a run. Accelerate's planner knows neither.
  bool margins = false;
  std::string model;  // for people
};

// One run of consecutive units that share everything below.
struct PlanStep {
  std::string first;  // names of the first and the last
  std::string last;
  std::int64_t count = 1;
  Device lies;     // where the weights are kept
  Device runs_on;  // where they are used; elsewhere than `lies` they are copied for each pass
  Bytes weights = 0;
  bool looked_up = false;  // tables on disk, of which the CPU reads the rows that a pass needs

  bool operator==(const PlanStep&) const = default;
};

struct PlanDevice {
  Device device;
  std::optional<Bytes> budget;  // nothing: no limit
  Bytes weights = 0;
  Bytes kv = 0;
  Bytes activations = 0;  // with logits and workspace
  Bytes context = 0;      // of the GPU's driver, and what it has recorded
  Bytes slots = 0;        // room for weights that are copied when they are needed
  Bytes margins = 0;      // around the weights

  Bytes used() const { return weights + kv + activations + context + slots + margins; }
  bool operator==(const PlanDevice&) const = default;
};

struct Prediction {
  double seconds = 0;
  std::string limit;  // the resource that decides: "GPU memory", "link of GPU 0", "disk", …

  bool operator==(const Prediction&) const = default;
};

struct Plan {
  std::string model;
  Planner planner = Planner::kHaul;
  MapMode mode = MapMode::kAuto;
  std::optional<std::int64_t> context;
  std::int64_t batch = 1;
  std::optional<Dtype> dtype;  // of KV cache and activations, where there is a context

  bool fits = false;
  DeviceMap map;
  MaxMemory memory;  // after balancing
  std::vector<PlanStep> steps;
  std::vector<PlanDevice> devices;
  // Of each matrix that lies in RAM and is used on a GPU: the rows that the CPU multiplies where
  // they lie, while the link brings the others.
  double cpu_share = 0;
  // For so many rows of input. For more the link alone is faster.
  std::int64_t helped_rows = kFewRows;
  // Keys and values lie in RAM though a GPU looks at them: each pass brings them, a layer ahead.
  bool kv_in_ram = false;
  Prediction load;
  std::optional<Prediction> first_token;  // after a prompt that fills the context
  // A step of the whole batch, of more than kFewRows prompts with a share of them; without
  // KV cache, a pass.
  Prediction token;
  double best_possible = 0;  // seconds that no placement can beat; 0: unknown
  bool proven_best = false;  // no placement is faster

  // What would have to be added to one device alone so that it fits.
  std::vector<Budget> shortfall;
  std::vector<std::string> changes;  // the smallest changes that would make it fit
  std::vector<std::string> warnings;
  std::string peer_failure;  // of Accelerate's planner, see InferredMap

  double tokens_per_second() const {
    return token.seconds > 0 ? static_cast<double>(batch) / token.seconds : 0;
  }
  // How much longer than `best_possible` it takes at most, as a share of that; 0 when it is proven
  // best, or unknown.
  double gap() const {
    return fits && !proven_best && best_possible > 0 ? token.seconds / best_possible - 1 : 0;
  }
  bool operator==(const Plan&) const = default;
};

Plan make_plan(const Description& description, const PlanRequest& request, const Profile& profile);

// The longest context, at least `minimum`, with which all weights stay on GPUs (or, without a GPU,
// in RAM); nothing when the minimum already does not. `most` bounds it.
std::optional<std::int64_t> longest_context(const Description& description, PlanRequest request,
                                            const Profile& profile, std::int64_t minimum,
                                            std::int64_t most);

// JSON with a version and a checksum. Reading throws Error(kCorrupt) for another version, a
// checksum that does not match (the file was edited) and anything malformed.
std::string write_plan(const Plan& plan);
Plan read_plan(std::string_view json, std::string_view source);

// A sentence for each step and each figure.
std::vector<std::string> explain(const Plan& plan, const Profile& profile);
// What changes from one plan to another, a line each; empty when they are the same.
std::vector<std::string> compare(const Plan& before, const Plan& after);

}  // namespace haul
