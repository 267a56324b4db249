#include "runtime/measure/random_checkpoint.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "core/base/disk_space.h"
#include "core/base/file.h"
#include "core/describe/describe.h"
#include "core/formats/sharded_writer.h"
#include "haul/error.h"
#include "runtime/dispatch/model_tensors.h"

namespace haul::runtime {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kShard = 2'000'000'000;
constexpr Bytes kMaxConfig = 1 * kMiB;
constexpr double kSpread = 0.02;  // as models are initialised
constexpr std::uint64_t kSeed = 1;

// Random numbers without an end. They come again after some millions, because to make all of a
// model's takes longer than to write them; after a prime, so that no two rows of a matrix are the
// same.
class Numbers {
 public:
  // The next ones, at most so many.
  at::Tensor next(std::int64_t most) {
    const std::int64_t count = std::min(most, kPeriod - at_);
    at::Tensor some = all_.narrow(0, at_, count);
    at_ = (at_ + count) % kPeriod;
    return some;
  }

 private:
  static constexpr std::int64_t kPeriod = 4194301;

  at::Tensor all_ = at::empty({kPeriod}, at::kFloat)
                        .normal_(0, kSpread, at::make_generator<at::CPUGeneratorImpl>(kSeed));
  std::int64_t at_ = 0;
};

// Of a tensor, at most so many. Norms begin as ones, biases as zeros, as in a model before its
// training.
at::Tensor some_of(const core::HeaderTensor& tensor, Numbers& numbers, std::int64_t most) {
  if (tensor.shape.size() > 1) return numbers.next(most);
  return at::full({most}, tensor.name.ends_with("bias") ? 0.0 : 1.0, at::kFloat);
}

// What a checkpoint holds: each tied tensor under its first name.
std::vector<core::HeaderTensor> stored(const Description& description) {
  std::set<std::string> again;
  for (const auto& group : description.tied) again.insert(group.begin() + 1, group.end());
  std::vector<core::HeaderTensor> result;
  for (const NamedTensor& tensor : all_tensors(description)) {
    if (tensor.persistent && !again.contains(tensor.name)) {
      result.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
  }
  return result;
}

// Of tables of which a token takes a row.
Bytes rows_alone(const ModuleSpec& module, const std::string& path,
                 const std::set<std::string>& tied) {
  Bytes sum = 0;
  for (const ParameterSpec& parameter : module.parameters) {
    const std::string name = path + parameter.name;
    if (module.class_name == "Embedding" && !tied.contains(name)) {
      sum += byte_count(parameter.dtype, parameter.shape);
    }
  }
  for (const ModuleSpec& child : module.children) {
    sum += rows_alone(child, path + child.name + ".", tied);
  }
  return sum;
}

bool is_complete(const fs::path& folder, const std::string& config) {
  const fs::path file = folder / "config.json";
  if (!fs::exists(file)) return false;
  if (core::read_file(file, kMaxConfig) == config) return true;
  throw Error(ErrorKind::kUsage, fmt::format("{}: is of another model", file.string()),
              "name another folder");
}

}  // namespace

RandomCheckpoint random_checkpoint(const core::Json& config, const std::string& source) {
  core::DescribeOptions options;
  options.dtype = core::WeightDtype::kStored;
  RandomCheckpoint result;
  result.description = core::describe_config(config, source, options);
  const auto& sizes = result.description.dimensions;
  if (!sizes || !sizes->causal || sizes->encoder_layers > 0) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{} does not continue a text", result.description.architecture),
                "take a config of GPT-2, Llama, Mistral, Qwen2, Qwen3 or BLOOM");
  }
  result.weights = core::safetensors_size(stored(result.description));
  std::set<std::string> tied;
  for (const auto& group : result.description.tied) tied.insert(group.begin(), group.end());
  result.read = result.weights - rows_alone(result.description.root, "", tied);
  return result;
}

void write_checkpoint(const RandomCheckpoint& checkpoint, const core::Json& config,
                      const fs::path& folder, const std::function<void(Bytes, Bytes)>& on_bytes) {
  const std::string text = config.dump(2) + "\n";
  fs::create_directories(folder);
  if (is_complete(folder, text)) return;
  core::require_disk_space(folder, checkpoint.weights);
  const std::vector<core::HeaderTensor> tensors = stored(checkpoint.description);
  Numbers numbers;
  Bytes done = 0;
  core::write_shards(
      folder, tensors, {{"format", "pt"}}, core::plan_shards(tensors, kShard),
      [&](std::size_t number, core::SafetensorsWriter& writer) {
        const core::HeaderTensor& tensor = tensors[number];
        auto left = static_cast<std::int64_t>(element_count(tensor.shape));
        while (left > 0) {
          const at::Tensor values = some_of(tensor, numbers, left);
          const at::Tensor bytes = values.to(to_scalar_type(tensor.dtype));
          writer.write({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()});
          left -= values.numel();
          done += bytes.nbytes();
          on_bytes(done, checkpoint.weights);
        }
      });
  // Last: it says that all the rest is there.
  core::write_file_atomically(folder / "config.json", text);
}

}  // namespace haul::runtime
