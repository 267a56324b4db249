#include "haul/torch/partial_state.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "distributed/group/state.h"
#include "haul/error.h"

namespace haul {

namespace {

constexpr std::int64_t kMostDimensions = 16;

at::Device device_for(const core::RankEnvironment& environment, bool cpu) {
  if (const char* const named = std::getenv("ACCELERATE_TORCH_DEVICE")) {
    try {
      return at::Device(named);
    } catch (const c10::Error&) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("ACCELERATE_TORCH_DEVICE names no device: '{}'", named));
    }
  }
  const auto gpus = at::hasCUDA() ? at::globalContext().getAcceleratorHooksInterface().deviceCount()
                                  : c10::DeviceIndex{0};
  if (cpu || gpus == 0) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(environment.local_rank % gpus)};
}

std::shared_ptr<PartialState::State> make_state(const PartialStateOptions& options) {
  auto state = std::make_shared<PartialState::State>();
  state->environment = core::read_rank_environment();
  state->device = device_for(state->environment, options.cpu);
  const distributed::GroupPlace place{state->environment, state->device, options.timeout};
  if (state->environment.world == 1) {
    state->group = distributed::make_group_of_one();
  } else if (state->device.is_cuda()) {
    state->group = distributed::make_nccl_group(place);
  } else {
    state->group = distributed::make_gloo_group(place);
  }
  return state;
}

// The group of this process. It is left as it is at the process's end: other threads may still use
// it then.
struct Current {
  std::mutex mutex;
  std::shared_ptr<PartialState::State> state;
};

Current& current() {
  static Current& instance = *new Current;
  return instance;
}

std::shared_ptr<PartialState::State> current_state(const PartialStateOptions& options) {
  const std::lock_guard lock(current().mutex);
  if (!current().state) current().state = make_state(options);
  return current().state;
}

// Number of dimensions, dtype and sizes, as a tensor that has the same shape everywhere.
at::Tensor form_of(const at::Tensor& tensor) {
  if (tensor.dim() > kMostDimensions) {
    throw Error(ErrorKind::kUnsupported, fmt::format("a tensor of {} dimensions", tensor.dim()));
  }
  std::vector<std::int64_t> form(kMostDimensions + 2);
  form[0] = tensor.dim();
  form[1] = static_cast<std::int64_t>(tensor.scalar_type());
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), form.begin() + 2);
  return at::tensor(form);
}

std::string words_for(const at::Tensor& form) {
  const std::int64_t* const values = form.const_data_ptr<std::int64_t>();
  return fmt::format("{} ({})", c10::toString(static_cast<at::ScalarType>(values[1])),
                     fmt::join(values + 2, values + 2 + values[0], ", "));
}

// By process. Throws, everywhere alike, when they differ in more than the length of `dim`; a
// negative one: in anything.
std::vector<at::Tensor> forms_of_all(distributed::Group& group, const at::Tensor& tensor,
                                     std::int64_t dim, const char* doing) {
  std::vector<at::Tensor> forms = group.all_gather(form_of(tensor));
  at::Tensor first = forms[0].clone();
  for (std::size_t p = 1; p < forms.size(); ++p) {
    if (dim >= 0)
      first.mutable_data_ptr<std::int64_t>()[2 + dim] = forms[p][2 + dim].item<std::int64_t>();
    if (!first.equal(forms[p])) {
      throw Error(ErrorKind::kUsage, fmt::format("{}: process 0 has {}, process {} has {}", doing,
                                                 words_for(forms[0]), p, words_for(forms[p])));
    }
  }
  return forms;
}

void check_process(std::int64_t from, std::int64_t count) {
  if (from >= 0 && from < count) return;
  throw Error(ErrorKind::kUsage, fmt::format("there is no process {} among {}", from, count));
}

at::Tensor to_bytes(const c10::IValue& value) {
  const std::vector<char> data = torch::jit::pickle_save(value);
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(data.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), data.data(), data.size());
  return bytes;
}

c10::IValue from_bytes(const at::Tensor& bytes, std::int64_t count) {
  const char* const data = static_cast<const char*>(bytes.const_data_ptr());
  return torch::jit::pickle_load(std::vector<char>(data, data + count));
}

// Longer by zeros.
at::Tensor grown(const at::Tensor& bytes, std::int64_t length) {
  return at::cat({bytes, at::zeros({length - bytes.size(0)}, bytes.options())});
}

}  // namespace

PartialState::PartialState(const PartialStateOptions& options) : state_(current_state(options)) {}

void PartialState::destroy_process_group() {
  const std::lock_guard lock(current().mutex);
  current().state.reset();
}

std::int64_t PartialState::num_processes() const {
  return state_->environment.world;
}
std::int64_t PartialState::process_index() const {
  return state_->environment.rank;
}
std::int64_t PartialState::local_num_processes() const {
  return state_->environment.local_world;
}
std::int64_t PartialState::local_process_index() const {
  return state_->environment.local_rank;
}
at::Device PartialState::device() const {
  return state_->device;
}
const std::string& PartialState::backend() const {
  return state_->group->backend();
}

void PartialState::wait_for_everyone() const {
  state_->group->barrier();
}

void PartialState::print(std::string_view line) const {
  if (!is_local_main_process()) return;
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

at::Tensor PartialState::gather_tensor(const at::Tensor& tensor) const {
  distributed::Group& group = *state_->group;
  const at::Tensor rows = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  forms_of_all(group, rows, -1, "a gather of tensors that differ");
  return at::cat(group.all_gather(rows));
}

at::Tensor PartialState::broadcast_tensor(const at::Tensor& tensor, std::int64_t from) const {
  check_process(from, num_processes());
  forms_of_all(*state_->group, tensor, -1, "a broadcast of tensors that differ");
  return state_->group->broadcast(tensor, static_cast<int>(from));
}

at::Tensor PartialState::reduce_tensor(const at::Tensor& tensor, Reduction how) const {
  forms_of_all(*state_->group, tensor, -1, "a reduction of tensors that differ");
  const at::Tensor sum = state_->group->sum(tensor);
  return how == Reduction::kSum ? sum : sum / num_processes();
}

at::Tensor PartialState::pad_tensor(const at::Tensor& tensor, std::int64_t dim, double pad,
                                    bool pad_first) const {
  const std::int64_t at = dim < 0 ? dim + tensor.dim() : dim;
  const bool has_it = at >= 0 && at < tensor.dim();
  const std::vector<at::Tensor> forms =
      forms_of_all(*state_->group, tensor, has_it ? at : -1,
                   "a padding of tensors that differ in more than their length");
  if (!has_it) return tensor;  // as the peer has it
  std::int64_t longest = 0;
  for (const at::Tensor& form : forms) {
    longest = std::max(longest, form[2 + at].item<std::int64_t>());
  }
  if (tensor.size(at) == longest) return tensor;
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<std::size_t>(at)] = longest - tensor.size(at);
  const at::Tensor more = at::full(sizes, pad, tensor.options());
  return pad_first ? at::cat({more, tensor}, at) : at::cat({tensor, more}, at);
}

std::vector<c10::IValue> PartialState::gather_values(const c10::IValue& value) const {
  const at::Tensor bytes = to_bytes(value);
  const std::vector<at::Tensor> lengths = state_->group->all_gather(at::tensor({bytes.size(0)}));
  std::int64_t longest = 0;
  for (const at::Tensor& length : lengths) longest = std::max(longest, length.item<std::int64_t>());
  const std::vector<at::Tensor> all = state_->group->all_gather(grown(bytes, longest));
  std::vector<c10::IValue> values;
  values.reserve(all.size());
  for (std::size_t p = 0; p < all.size(); ++p) {
    values.push_back(from_bytes(all[p], lengths[p].item<std::int64_t>()));
  }
  return values;
}

c10::IValue PartialState::broadcast_value(const c10::IValue& value, std::int64_t from) const {
  check_process(from, num_processes());
  const int root = static_cast<int>(from);
  const bool mine = process_index() == from;
  at::Tensor bytes = mine ? to_bytes(value) : at::Tensor();
  const at::Tensor length =
      state_->group->broadcast(at::tensor({mine ? bytes.size(0) : std::int64_t{0}}), root);
  if (!mine) bytes = at::empty({length.item<std::int64_t>()}, at::kByte);
  return from_bytes(state_->group->broadcast(bytes, root), length.item<std::int64_t>());
}

std::vector<std::int64_t> PartialState::results_of_each(std::int64_t results,
                                                        const Share& share) const {
  const std::vector<at::Tensor> all = state_->group->all_gather(
      at::tensor({share.begin, share.count, share.padding, share.total, results}));
  std::vector<std::int64_t> counts;
  std::int64_t next = 0;
  for (std::size_t p = 0; p < all.size(); ++p) {
    const std::int64_t* const of = all[p].const_data_ptr<std::int64_t>();
    if (of[0] != next || of[3] != share.total) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("process {} gives results for items {} to {} of {}, "
                              "expected are those from {} on, of {}",
                              p, of[0], of[0] + of[1], of[3], next, share.total));
    }
    if (of[4] != of[1] + of[2]) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("process {} has {} results for its {} items and {} of padding", p,
                              of[4], of[1], of[2]));
    }
    counts.push_back(of[1]);
    next += of[1];
  }
  return counts;
}

at::Tensor PartialState::gather_split(const at::Tensor& results, const Share& share) const {
  const std::vector<std::int64_t> counts = results_of_each(detail::rows_of(results), share);
  const std::vector<at::Tensor> all = state_->group->all_gather(pad_tensor(results, 0, 0, false));
  std::vector<at::Tensor> parts;
  parts.reserve(all.size());
  for (std::size_t p = 0; p < all.size(); ++p) parts.push_back(all[p].narrow(0, 0, counts[p]));
  return at::cat(parts);
}

}  // namespace haul
