#include "runtime/dispatch/interception.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/library.h>

#include "haul/error.h"
#include "kernels/linear.h"
#include "runtime/dispatch/row_lookup.h"
#include "runtime/dispatch/split_linear.h"
#include "runtime/dispatch/tensor_values.h"
#include "runtime/dispatch/weight_store.h"

// An op that touches a weight of a dispatched model arrives here, below autograd: its other inputs
// are brought to where the weight is used, the weight's bytes are leased, and the op is called
// again with the key out of the way. Autograd has seen the weight itself, so gradients are the
// weight's; in the backward pass the same weight arrives here again.

namespace haul::runtime {
namespace {

enum class Touch : std::uint8_t {
  kData,        // reads or writes elements
  kStatistics,  // likewise, and in training writes to running statistics, which its schema hides
  kView,        // makes another view of the same memory and looks at none of it
  kCopy,        // copies between devices by itself
  kProducts,    // linear layers, with which the CPU may help
  kLookup,      // reads rows of a table
};

// A view by its schema, which a real kernel keeps to; composite ops (reshape, contiguous) may copy.
Touch touch_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.name() == "aten::copy_" || schema.name() == "aten::_to_copy") return Touch::kCopy;
  if (schema.name() == "haul::products") return Touch::kProducts;
  if (schema.name() == "aten::embedding" && !schema.is_mutable()) return Touch::kLookup;
  if (!schema.is_mutable() && schema.argumentIndexWithName("running_mean") &&
      schema.argumentIndexWithName("training")) {
    return Touch::kStatistics;
  }
  if (schema.returns().empty() ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return Touch::kData;
  }
  const bool views = std::all_of(
      schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
        return result.alias_info() != nullptr && !result.alias_info()->isWrite();
      });
  return views ? Touch::kView : Touch::kData;
}

Touch cached_touch_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, Touch> known;
  const auto [entry, is_new] = known.try_emplace(&op.schema(), Touch::kData);
  if (is_new) entry->second = touch_of(op);
  return entry->second;
}

// Where this thread last used a weight: ops on activations alone that lie on several devices
// follow.
thread_local std::optional<c10::Device> last_device;

struct Found {
  std::vector<Weight*> streamed;      // each once
  std::optional<c10::Device> device;  // where the op's weights are used
  bool several_devices = false;       // outputs have to be marked, too
};

Found find_weights(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  Found found;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!is_marked(tensor)) return;
      Weight* const weight = find_weight(tensor);
      if (weight == nullptr) {
        found.several_devices = true;  // only those of such a model mark what is no weight
        return;
      }
      if (!found.device) found.device = weight->device;
      found.several_devices |= weight->store->has_several_devices();
      if (weight->streamer == nullptr ||
          std::find(found.streamed.begin(), found.streamed.end(), weight) != found.streamed.end()) {
        return;
      }
      if (weight->device != *found.device) {
        throw Error(ErrorKind::kUnsupported,
                    fmt::format("{} uses '{}' of {} and a weight of {}", op.schema().name(),
                                weight->name, tier_name(weight->device), tier_name(*found.device)),
                    "put modules whose weights one op uses on one device");
      }
      found.streamed.push_back(weight);
    });
  }
  return found;
}

at::Tensor brought(const at::Tensor& tensor, c10::Device to, const c10::OperatorHandle& op) {
  if (!tensor.defined() || tensor.device() == to) return tensor;
  if (tensor.dim() == 0 && tensor.device().is_cpu()) return tensor;  // a number: every device's
  if (at::GradMode::is_enabled() && tensor.requires_grad()) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: an input on {} needs a gradient, and its weight is used on {}",
                            op.schema().name(), tensor.device().str(), to.str()),
                "call the model through the handle that dispatch_model returns, which brings "
                "inputs along with their gradients");
  }
  return tensor.to(to);
}

bool on_several_devices(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> first;
  bool several = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (!first) first = tensor.device();
      several |= tensor.device() != *first;
    });
  }
  return several;
}

void bring_inputs(const c10::OperatorHandle& op, c10::Device to, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const std::size_t first = stack->size() - count;
  for (std::size_t i = 0; i < count; ++i) {
    c10::IValue& value = (*stack)[first + i];
    bool elsewhere = false;
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      elsewhere |= tensor.defined() && tensor.device() != to;
    });
    if (elsewhere) {
      value = with_tensors(value, [&](const at::Tensor& t) { return brought(t, to, op); });
      continue;
    }
    // A factory among the ops (new_zeros, say) follows its input.
    if (op.schema().arguments()[i].name() == "device" && value.isDevice()) value = to;
  }
}

// What comes out of a model on several devices has to be brought together again: it is marked.
void mark_outputs(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& returns = op.schema().returns();
  for (std::size_t i = 0; i < returns.size(); ++i) {
    if (returns[i].alias_info() != nullptr) continue;
    c10::IValue& value = (*stack)[stack->size() - returns.size() + i];
    value = with_tensors(value, [](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage() || is_marked(tensor)) return tensor;
      return tensor_on(tensor.storage(), tensor.scalar_type(), tensor.sizes(), tensor.strides(),
                       tensor.storage_offset(), true);
    });
  }
}

using Arguments = c10::ArrayRef<c10::IValue>;

bool is_written(const c10::Argument& argument, bool statistics) {
  if (statistics && argument.name().starts_with("running_")) return true;
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

void keep_written(const c10::OperatorHandle& op, Arguments arguments, bool statistics) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(op.schema().arguments()[i], statistics)) continue;
    for_each_tensor(arguments[i], [](const at::Tensor& tensor) {
      Weight* const weight = tensor.defined() ? find_weight(tensor) : nullptr;
      if (weight != nullptr && weight->streamer != nullptr) keep_changes(*weight);
    });
  }
}

// What haul::products takes.
struct Layers {
  explicit Layers(Arguments arguments)
      : x(arguments[0].toTensor()), weights(arguments[1].toTensorVector()) {
    for (const std::optional<at::Tensor>& bias : arguments[2].toOptionalTensorVector()) {
      biases.push_back(bias.value_or(at::Tensor()));
    }
  }
  bool are_split() const {
    const Weight* const own = is_marked(x) ? find_weight(x) : nullptr;
    if (own != nullptr && own->streamer != nullptr) return false;  // it has to be fetched itself
    return std::all_of(weights.begin(), weights.end(),
                       [&](const at::Tensor& weight) { return is_split(x, weight); });
  }

  at::Tensor x;
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
};

// Linear layers that the GPU and the CPU compute together, if these are such.
bool run_together(Arguments arguments, const Found& found, torch::jit::Stack* stack) {
  if (found.streamed.empty()) return false;
  const Layers layers(arguments);
  if (!layers.are_split()) return false;
  std::vector<at::Tensor> results = split_linears(layers.x, layers.weights, layers.biases);
  torch::jit::drop(*stack, arguments.size());
  stack->emplace_back(std::move(results));
  return true;
}

// Several linear layers whose weights have to be fetched: a plan has room for one at a time.
bool run_one_by_one(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const Layers layers(Arguments(*stack).slice(stack->size() - count));
  if (layers.weights.size() == 1 || layers.are_split()) return false;
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < layers.weights.size(); ++i) {
    results.push_back(kernels::plain_linear(layers.x, layers.weights[i], layers.biases[i]));
  }
  torch::jit::drop(*stack, count);
  stack->emplace_back(std::move(results));
  return true;
}

// Rows of a table that the CPU looks up where it lies, if this is one.
bool run_by_rows(Arguments arguments, const Found& found, torch::jit::Stack* stack) {
  const at::Tensor& table = arguments[0].toTensor();
  const at::Tensor& ids = arguments[1].toTensor();
  if (!can_look_up(table)) return false;
  std::vector<Weight*> others = found.streamed;  // ids may be the model's own
  std::erase(others, find_weight(table));
  at::Tensor rows;
  {
    OpLeases leases;
    leases.take(others);
    rows = look_up(table, ids);
  }
  torch::jit::drop(*stack, arguments.size());
  stack->emplace_back(std::move(rows));
  return true;
}

// A copy of such a table, for which there is no slot.
bool run_copy(const c10::OperatorHandle& op, Arguments arguments, torch::jit::Stack* stack) {
  if (op.schema().name() != "aten::copy_") return false;
  at::Tensor to = arguments[0].toTensor();
  if (!copy_table(arguments[1].toTensor(), to)) return false;
  torch::jit::drop(*stack, arguments.size());
  stack->emplace_back(std::move(to));
  return true;
}

void intercept(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Touch touch = cached_touch_of(op);
  if (touch == Touch::kProducts && run_one_by_one(op, stack)) return;
  const c10::impl::ExcludeDispatchKeyGuard guard(kMark);  // not back to here
  if (touch == Touch::kView) {
    op.callBoxed(stack);
    return;
  }
  const std::size_t count = op.schema().arguments().size();
  const Found found = find_weights(op, Arguments(*stack).slice(stack->size() - count));
  if (touch != Touch::kCopy) {
    if (found.device) {
      last_device = found.device;
      bring_inputs(op, *found.device, stack);
    } else if (last_device && on_several_devices(Arguments(*stack).slice(stack->size() - count))) {
      bring_inputs(op, *last_device, stack);
    }
  }
  const bool statistics =
      touch == Touch::kStatistics &&
      (*stack)[stack->size() - count + *op.schema().argumentIndexWithName("training")].toBool();
  std::vector<c10::IValue> written;  // the call takes the arguments off the stack
  if (statistics || op.schema().is_mutable())
    written = Arguments(*stack).slice(stack->size() - count).vec();
  if (touch == Touch::kProducts &&
      run_together(Arguments(*stack).slice(stack->size() - count), found, stack)) {
    if (found.several_devices) mark_outputs(op, stack);
    return;
  }
  if (touch == Touch::kLookup &&
      run_by_rows(Arguments(*stack).slice(stack->size() - count), found, stack)) {
    if (found.several_devices) mark_outputs(op, stack);
    return;
  }
  if (touch == Touch::kCopy &&
      run_copy(op, Arguments(*stack).slice(stack->size() - count), stack)) {
    return;
  }
  OpLeases leases;
  leases.take(found.streamed);
  op.callBoxed(stack);
  keep_written(op, written, statistics);
  if (found.several_devices) mark_outputs(op, stack);
}

}  // namespace

at::Tensor tensor_on(const c10::Storage& storage, c10::ScalarType type, c10::IntArrayRef sizes,
                     c10::IntArrayRef strides, std::int64_t offset, bool marked) {
  c10::DispatchKeySet keys(storage.device().is_cpu() ? c10::DispatchKey::CPU
                                                     : c10::DispatchKey::CUDA);
  if (marked) keys = keys.add(kMark);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), keys,
                                                   c10::scalarTypeToTypeMeta(type));
  impl->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(impl));
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
}

}  // namespace haul::runtime
