#include "runtime/dispatch/move_guard.h"

#include <ATen/core/VariableHooksInterface.h>
#include <fmt/format.h>

#include "haul/error.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/weight_store.h"

// Module::to gives each parameter new data, one after the other, through torch's hooks. These here
// stand in front of torch's own, look at that one call, and pass everything on. They refuse the
// first tensor of a model that is offloaded in part, whether that one is or not, so that none
// moves.

namespace haul::runtime {
namespace {

using at::TensorBase;

class Guard final : public at::impl::VariableHooksInterface {
 public:
  explicit Guard(const at::impl::VariableHooksInterface* torch) : torch_(torch) {}

  void set_data(const TensorBase& tensor, const TensorBase& data) const override {
    const at::Tensor self(tensor);
    const bool same = tensor.unsafeGetTensorImpl() == data.unsafeGetTensorImpl();
    // What lies where it is used may get other values.
    const bool moves =
        data.device() != tensor.device() || data.scalar_type() != tensor.scalar_type();
    const bool away = !same && is_marked(self);
    const auto found = away || moves ? name_in_offloaded_model(self) : std::nullopt;
    if (found || away) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("'{}' is a weight of a dispatched model, which cannot be moved or "
                              "converted: part of it is offloaded",
                              found.value_or("a tensor")),
                  "call haul::undispatch first, or load it again with another device map or dtype");
    }
    torch_->set_data(tensor, data);
  }

  TensorBase tensor_data(const TensorBase& t) const override { return torch_->tensor_data(t); }
  TensorBase variable_data(const TensorBase& t) const override { return torch_->variable_data(t); }
  const std::shared_ptr<torch::autograd::Node>& grad_fn(const TensorBase& t) const override {
    return torch_->grad_fn(t);
  }
  unsigned _register_hook(const TensorBase& t,
                          std::function<TensorBase(const TensorBase&)> hook) const override {
    return torch_->_register_hook(t, std::move(hook));
  }
  void remove_hook(const TensorBase& t, unsigned pos) const override {
    torch_->remove_hook(t, pos);
  }
  bool is_view(const TensorBase& t) const override { return torch_->is_view(t); }
  const TensorBase& base(const TensorBase& t) const override { return torch_->base(t); }
  const std::string& name(const TensorBase& t) const override { return torch_->name(t); }
  bool is_leaf(const TensorBase& t) const override { return torch_->is_leaf(t); }
  int64_t output_nr(const TensorBase& t) const override { return torch_->output_nr(t); }
  TensorBase data(const TensorBase& t) const override { return torch_->data(t); }
  int64_t _version(const TensorBase& t) const override { return torch_->_version(t); }
  void retain_grad(const TensorBase& t) const override { torch_->retain_grad(t); }
  bool retains_grad(const TensorBase& t) const override { return torch_->retains_grad(t); }
  void _backward(const at::Tensor& t, at::TensorList inputs,
                 const std::optional<at::Tensor>& gradient, std::optional<bool> retain_graph,
                 bool create_graph) const override {
    torch_->_backward(t, inputs, gradient, retain_graph, create_graph);
  }
  void requires_grad_(const TensorBase& t, bool value) const override {
    torch_->requires_grad_(t, value);
  }
  void basic_autograd_not_implemented_fallback(const c10::OperatorHandle& op,
                                               c10::DispatchKeySet keys,
                                               torch::jit::Stack* stack) const override {
    torch_->basic_autograd_not_implemented_fallback(op, keys, stack);
  }
  std::optional<c10::ScalarType> grad_dtype(const TensorBase& t) const override {
    return torch_->grad_dtype(t);
  }
  void set_grad_dtype(const TensorBase& t,
                      const std::optional<c10::ScalarType>& type) const override {
    torch_->set_grad_dtype(t, type);
  }

 private:
  const at::impl::VariableHooksInterface* torch_;
};

}  // namespace

void guard_moves() {
  static const bool installed = [] {
    // Never taken away again: a thread may be inside.
    at::impl::SetVariableHooks(new Guard(at::impl::GetVariableHooks()));
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace haul::runtime
