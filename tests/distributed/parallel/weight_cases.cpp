#include <cstdint>
#include <fstream>
#include <mutex>
#include <sstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include "core/formats/checkpoint.h"
#include "haul/torch/empty_weights.h"
#include "haul/torch/pipeline.h"
#include "runtime/dispatch/weight_store.h"
#include "tests/distributed/parallel/parallel_worker.h"

namespace haul::test {
namespace {

constexpr std::int64_t kLayers = 6;
constexpr std::int64_t kWidth = 2048;
constexpr Bytes kWeights = kLayers * kWidth * kWidth * 4;  // 100 MB

class StackImpl : public torch::nn::Module {
 public:
  StackImpl() {
    layers = register_module("layers", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < kLayers; ++i) {
      layers->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
    }
  }
  at::Tensor& weight(std::int64_t i) {
    return layers[static_cast<std::size_t>(i)]->as<torch::nn::LinearImpl>()->weight;
  }
  std::shared_ptr<torch::nn::LinearImpl> layer(std::int64_t i) {
    return std::dynamic_pointer_cast<torch::nn::LinearImpl>(
        layers->ptr(static_cast<std::size_t>(i)));
  }

  torch::nn::ModuleList layers{nullptr};
};
TORCH_MODULE(Stack);

Stack empty_stack() {
  const EmptyWeights scope;
  return Stack();
}

// Row i of layer l is full of i + l.
bool is_right(const at::Tensor& weight, std::int64_t layer) {
  const at::Tensor first = weight.select(1, 0).to(at::kFloat);
  return first.equal((at::arange(kWidth) + layer).to(weight.scalar_type()).to(at::kFloat)) &&
         weight.eq(weight.select(1, 0).unsqueeze(1)).all().item<bool>();
}

// Memory of this process where the weights lie, what is shared with others in equal parts.
Bytes memory_of_weights(Stack& stack) {
  const auto holds_a_weight = [&](Bytes begin, Bytes end) {
    for (std::int64_t i = 0; i < kLayers; ++i) {
      const auto at = reinterpret_cast<std::uintptr_t>(stack->weight(i).const_data_ptr());
      if (at < end && at + stack->weight(i).nbytes() > begin) return true;
    }
    return false;
  };
  std::ifstream file("/proc/self/smaps");
  Bytes sum = 0;
  bool counts = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (const std::size_t dash = first.find('-'); dash != std::string::npos) {
      counts = holds_a_weight(std::stoull(first, nullptr, 16),
                              std::stoull(first.substr(dash + 1), nullptr, 16));
    } else if (counts && first == "Pss:") {
      Bytes kib = 0;
      words >> kib;
      sum += kib * kKiB;
    }
  }
  return sum;
}

// What all processes together take for the weights of a model of which they use every one.
Bytes memory_for(const PartialState& state, Stack& stack, const std::filesystem::path& folder,
                 const LoadOptions& options) {
  load_checkpoint_in_model(stack, folder, DeviceMap{{"", kCpuDevice}}, options);
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expect(is_right(stack->weight(i), i), "the weight of layer " + std::to_string(i));
  }
  state.wait_for_everyone();
  const Bytes own = memory_of_weights(stack);
  state.wait_for_everyone();
  Bytes sum = 0;
  for (const std::int64_t one : state.gather_object(static_cast<std::int64_t>(own))) {
    sum += static_cast<Bytes>(one);
  }
  return sum;
}

}  // namespace

void write_weights(const std::filesystem::path& folder) {
  Stack stack;
  const at::NoGradGuard no_gradients;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    stack->weight(i).copy_((at::arange(kWidth) + i).unsqueeze(1).expand({kWidth, kWidth}));
  }
  save_model(stack, folder);
}

void share_weights(const PartialState& state, const std::filesystem::path& folder) {
  const auto processes = static_cast<Bytes>(state.num_processes());
  LoadOptions options;
  {
    Stack apart = empty_stack();
    const Bytes taken = memory_for(state, apart, folder, options);
    expect(taken >= processes * kWeights, "apart " + std::to_string(taken));
  }
  options.sharing = share_host_weights(state);
  {
    Stack together = empty_stack();
    const Bytes taken = memory_for(state, together, folder, options);
    expect(taken < kWeights * 101 / 100, "together " + std::to_string(taken));
    expect(taken > kWeights * 99 / 100, "together " + std::to_string(taken));
    // What one writes stays with it.
    const at::NoGradGuard no_gradients;
    if (state.is_last_process() || state.is_main_process()) together->weight(0).fill_(-1);
    state.wait_for_everyone();
    const bool changed = state.is_last_process() || state.is_main_process();
    expect(is_right(together->weight(0), 0) != changed, "a weight that some have changed");
    expect(is_right(together->weight(1), 1), "a weight that nobody has changed");
  }
  // One that loads them otherwise has its own, converted.
  options.dtype = state.is_last_process() ? Dtype::kBF16 : Dtype::kF32;
  Stack mixed = empty_stack();
  load_checkpoint_in_model(mixed, folder, DeviceMap{{"", kCpuDevice}}, options);
  const at::Tensor rows = (at::arange(kWidth) + 3).to(mixed->weight(3).scalar_type());
  expect(mixed->weight(3).select(1, 5).equal(rows), "a weight of those that differ");
}

void load_own_weights(const PartialState& state, const std::filesystem::path& folder) {
  struct Range {
    Bytes begin, end;
  };
  static std::mutex mutex;
  static std::vector<Range> reads;
  runtime::disk_options().fault = [](int, Bytes offset, Bytes size) -> std::optional<int> {
    const std::lock_guard lock(mutex);
    reads.push_back({offset, offset + size});
    return std::nullopt;
  };
  Stack stack = empty_stack();
  PipelineBlocks blocks(stack);
  for (std::int64_t i = 0; i < kLayers; ++i) {
    blocks.add("layers." + std::to_string(i),
               [layer = stack->layer(i)](const at::Tensor& x) { return layer->forward(x); });
  }
  Pipeline pipeline = load_pipeline(blocks, folder);
  const auto own = static_cast<std::int64_t>(pipeline.blocks().size());
  expect(own == kLayers / state.num_processes(), "stages of equal time");
  const std::int64_t first = own * state.process_index();
  constexpr Bytes kLayer = kWeights / kLayers;
  expect(pipeline.bytes_read() == static_cast<Bytes>(own) * kLayer, "the bytes that were counted");
  // Every request to the disk lies in this stage's weights, but for the edges of a page.
  const core::Checkpoint checkpoint = core::Checkpoint::open(folder);
  Bytes read = 0;
  for (const Range& range : reads) {
    bool inside = false;
    for (const core::StoredTensor& tensor : checkpoint.tensors()) {
      const std::int64_t layer = std::stoll(tensor.name.substr(std::string("layers.").size()));
      inside |= layer >= first && layer < first + own &&
                range.begin + kReadSlack >= tensor.offset &&
                range.end <= tensor.offset + kLayer + kReadSlack;
    }
    expect(inside, "a read of another stage's weights at " + std::to_string(range.begin));
    read += range.end - range.begin;
  }
  expect(read >= static_cast<Bytes>(own) * kLayer, "too little was read");
  for (std::int64_t i = 0; i < kLayers; ++i) {
    const bool mine = i >= first && i < first + own;
    expect(stack->weight(i).is_meta() != mine, "whose weight is " + std::to_string(i));
    if (mine) expect(is_right(stack->weight(i), i), "a weight that was loaded");
  }
  const auto output = pipeline(at::full({2, kWidth}, 1e-4));
  expect(output.has_value() == state.is_last_process(), "the output");
}

}  // namespace haul::test
