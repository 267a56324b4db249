#include "haul/torch/empty_weights.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "runtime/dispatch/tensor_values.h"

// How it works: a dispatch key that nothing else uses is switched on for the thread, and every op
// passes through on_op below. It sends factories to the meta device and keeps a list of what was
// called. At the end of the scope the calls that lead to a buffer, and no others, are made again
// for real, and the results are moved into the very tensors that the model holds.

namespace haul {
namespace {

using runtime::for_each_tensor;
using runtime::with_tensors;

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

bool is_meta(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_meta();
}

void call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);  // not back to on_op
  op.callBoxed(stack);
}

// Which argument of a factory names the device; nothing for ops that take tensors, since those
// follow their inputs.
std::optional<std::size_t> device_argument(const c10::FunctionSchema& schema,
                                           const torch::jit::Stack& arguments) {
  bool takes_tensors = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& t) { takes_tensors |= t.defined(); });
  }
  const auto index = schema.argumentIndexWithName("device");
  if (takes_tensors || !index) return std::nullopt;
  return static_cast<std::size_t>(*index);
}

}  // namespace

class EmptyWeights::Recorder {
 public:
  Recorder(c10::Device device, bool buffers)
      : device_(device), buffers_(buffers), previous_(std::exchange(current_, this)) {
    include_.emplace(kKey);
  }

  ~Recorder() { leave(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void leave() {
    if (!include_) return;
    include_.reset();
    current_ = previous_;
  }

  static Recorder* current() { return current_; }

  void on_op(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
    const c10::FunctionSchema& schema = op.schema();
    const std::size_t count = schema.arguments().size();
    torch::jit::Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    torch::jit::drop(*stack, count);
    const torch::jit::Stack asked = arguments;

    if (const auto index = device_argument(schema, arguments);
        index && arguments[*index].isNone()) {
      arguments[*index] = device_;
    }
    torch::jit::Stack results;
    if (!run_on_meta(op, arguments, &results)) {
      results = real_arguments(arguments);
      call(op, &results);
    } else if (device_.is_meta()) {
      record(op, asked, results);
    }
    for (c10::IValue& result : results) stack->push_back(std::move(result));
  }

  // Ends the recording and, where they are wanted, computes the buffers that live.
  void finish() {
    leave();
    if (!buffers_) return;
    const std::vector<at::Tensor> buffers = live_buffers();
    std::unordered_set<c10::StorageImpl*> wanted;
    for (const at::Tensor& buffer : buffers) wanted.insert(storage_of(buffer));
    const Values values = values_of(std::move(wanted));
    for (const at::Tensor& buffer : buffers) {
      c10::TensorImpl* impl = buffer.unsafeGetTensorImpl();
      impl->shallow_copy_from(values.at(impl).getIntrusivePtr());
    }
  }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  using Values = std::unordered_map<c10::TensorImpl*, at::Tensor>;  // by the empty tensor

  struct Call {
    c10::OperatorHandle op;
    torch::jit::Stack arguments;  // meta tensors stand for themselves and cost nothing
    std::vector<c10::StorageImpl*> reads;
    std::vector<c10::StorageImpl*> writes;  // storages of results and of arguments written in place
    std::vector<c10::TensorImpl*> results;  // flattened; null for one that is not meta
  };

  static c10::StorageImpl* storage_of(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }

  // False where the call has nothing to do on meta, or cannot be made there because it needs
  // values.
  bool run_on_meta(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                   torch::jit::Stack* results) const {
    bool any_meta = false;
    bool writes_real = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = op.schema().arguments()[i].alias_info();
      for_each_tensor(arguments[i], [&](const at::Tensor& t) {
        any_meta |= is_meta(t);
        writes_real |= alias != nullptr && alias->isWrite() && t.defined() && !t.is_meta();
      });
    }
    if (any_meta && writes_real) return false;
    for (const c10::IValue& argument : arguments) {
      if (!any_meta) {
        results->push_back(argument);
      } else {  // a real value among empty ones counts by its shape
        results->push_back(with_tensors(argument, [](const at::Tensor& t) {
          return !t.defined() || t.is_meta() ? t : at::empty_like(t, at::kMeta);
        }));
      }
    }
    if (!any_meta) {
      call(op, results);
      return true;
    }
    try {
      call(op, results);
      return true;
    } catch (const c10::Error&) {
      results->clear();
      return false;
    }
  }

  void record(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
              const torch::jit::Stack& results) {
    Call made{op, {}, {}, {}, {}};
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = op.schema().arguments()[i].alias_info();
      if (arguments[i].isDevice() && arguments[i].toDevice() == device_) {
        made.arguments.emplace_back();  // asked of an empty tensor, whose device it is
        continue;
      }
      made.arguments.push_back(with_tensors(arguments[i], [&](const at::Tensor& t) {
        if (!t.defined()) return t;
        if (!t.is_meta()) return t.detach().clone();  // its value now, whatever becomes of it
        made.reads.push_back(storage_of(t));
        if (alias != nullptr && alias->isWrite()) made.writes.push_back(storage_of(t));
        return keep_name(t);
      }));
    }
    for (const c10::IValue& result : results) {
      for_each_tensor(result, [&](const at::Tensor& t) {
        made.results.push_back(is_meta(t) ? t.unsafeGetTensorImpl() : nullptr);
        if (!is_meta(t)) return;
        made.writes.push_back(storage_of(t));
        keep_name(t);
      });
    }
    if (!made.writes.empty()) calls_.push_back(std::move(made));
  }

  // Makes sure that neither the tensor's address nor its storage's is used again for another while
  // this object lives, without keeping the tensor alive; gives a stand-in to put into a Call.
  at::Tensor keep_name(const at::Tensor& tensor) {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    auto entry = names_.find(impl);
    if (entry == names_.end()) {
      at::Tensor stand_in(impl->shallow_copy_and_detach(c10::VariableVersion(0), true));
      stand_ins_.emplace(stand_in.unsafeGetTensorImpl(), impl);
      Name name{WeakTensor(tensor.getIntrusivePtr()), std::move(stand_in)};
      entry = names_.emplace(impl, std::move(name)).first;
    }
    return entry->second.stand_in;
  }

  std::vector<at::Tensor> live_buffers() const {
    std::vector<at::Tensor> live;
    std::unordered_set<c10::StorageImpl*> parameters;
    for (const auto& [impl, name] : names_) {
      auto locked = name.weak.lock();
      if (!locked) continue;
      at::Tensor tensor(std::move(locked));
      if (!tensor.is_meta()) continue;
      if (tensor.requires_grad()) parameters.insert(storage_of(tensor));
      live.push_back(std::move(tensor));
    }
    std::erase_if(live, [&](const at::Tensor& t) { return parameters.contains(storage_of(t)); });
    return live;
  }

  // Makes those calls again, for real, that write what is wanted, and those that they depend on.
  Values values_of(std::unordered_set<c10::StorageImpl*> wanted) const {
    std::vector<const Call*> needed;
    for (auto made = calls_.rbegin(); made != calls_.rend(); ++made) {
      const bool leads_there =
          std::any_of(made->writes.begin(), made->writes.end(),
                      [&](c10::StorageImpl* storage) { return wanted.contains(storage); });
      if (!leads_there) continue;
      wanted.insert(made->reads.begin(), made->reads.end());
      needed.push_back(&*made);
    }
    const at::NoGradGuard no_grad;
    Values values;
    for (auto made = needed.rbegin(); made != needed.rend(); ++made) run_again(**made, &values);
    return values;
  }

  void run_again(const Call& made, Values* values) const {
    torch::jit::Stack stack;
    for (const c10::IValue& argument : made.arguments) {
      stack.push_back(with_tensors(argument, [&](const at::Tensor& t) {
        return is_meta(t) ? values->at(stand_ins_.at(t.unsafeGetTensorImpl())) : t;
      }));
    }
    call(made.op, &stack);
    std::size_t index = 0;
    for (const c10::IValue& result : stack) {
      for_each_tensor(result, [&](const at::Tensor& t) {
        if (c10::TensorImpl* name = made.results[index++]; name != nullptr) (*values)[name] = t;
      });
    }
  }

  // The arguments with real values in place of empty ones, for a call that must have them now.
  torch::jit::Stack real_arguments(const torch::jit::Stack& arguments) const {
    std::unordered_set<c10::StorageImpl*> wanted;
    for (const c10::IValue& argument : arguments) {
      for_each_tensor(argument, [&](const at::Tensor& t) {
        if (is_meta(t)) wanted.insert(storage_of(t));
      });
    }
    const Values values = values_of(std::move(wanted));
    torch::jit::Stack result;
    for (const c10::IValue& argument : arguments) {
      result.push_back(with_tensors(argument, [&](const at::Tensor& t) {
        const auto found = is_meta(t) ? values.find(t.unsafeGetTensorImpl()) : values.end();
        return found == values.end() ? t : found->second;
      }));
    }
    return result;
  }

  struct Name {
    WeakTensor weak;
    at::Tensor stand_in;  // shares the storage and nothing else
  };

  static thread_local Recorder* current_;

  c10::Device device_;
  bool buffers_;
  Recorder* previous_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> include_;
  std::vector<Call> calls_;
  std::unordered_map<c10::TensorImpl*, Name> names_;
  std::unordered_map<c10::TensorImpl*, c10::TensorImpl*> stand_ins_;  // stand-in to name
};

thread_local EmptyWeights::Recorder* EmptyWeights::Recorder::current_ = nullptr;

EmptyWeights::EmptyWeights(const EmptyWeightsOptions& options)
    : recorder_(std::make_unique<Recorder>(at::kMeta, !options.include_buffers)) {}

EmptyWeights::~EmptyWeights() noexcept(false) {
  if (std::uncaught_exceptions() == 0) recorder_->finish();
}

InitOnDevice::InitOnDevice(c10::Device device)
    : recorder_(std::make_unique<EmptyWeights::Recorder>(device, false)) {}

InitOnDevice::~InitOnDevice() = default;

namespace {

void on_op(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (EmptyWeights::Recorder* recorder = EmptyWeights::Recorder::current()) {
    recorder->on_op(op, stack);
  } else {
    call(op, stack);
  }
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_op>());
}

}  // namespace
}  // namespace haul
