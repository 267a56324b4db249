#pragma once

// The processes that work on one thing together, started by `haul launch`, torchrun, MPI or Slurm.
//
//   haul::PartialState state;
//   const auto part = state.split_between_processes(prompts);
//   std::vector<std::string> answers;
//   for (const std::string& prompt : part.items) answers.push_back(answer(prompt));
//   for (const std::string& text : state.gather_split(answers, part.share)) state.print(text);
//
// A process that nobody launched is a group of one, and the same lines work. Every PartialState of
// a process is the same group, which is made by the first. A collective is called by all processes,
// in the same order, from one thread at a time; one that a process does not come to ends in an
// Error(kResource) after the timeout. A failed collective leaves the group useless: end the
// process.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "haul/torch/split.h"

namespace haul {

struct PartialStateOptions {
  bool cpu = false;                       // even where there is a GPU
  std::chrono::seconds timeout{30 * 60};  // until a collective gives up
};

enum class Reduction : std::uint8_t { kSum, kMean };

class PartialState {
 public:
  // Waits until all processes are there. The options of the first one count. Throws Error(kUsage)
  // for an environment that cannot be, Error(kResource) when the others do not come in time.
  explicit PartialState(const PartialStateOptions& options = {});

  std::int64_t num_processes() const;
  std::int64_t process_index() const;
  std::int64_t local_num_processes() const;  // on this machine
  std::int64_t local_process_index() const;
  // A GPU by the local index, or what ACCELERATE_TORCH_DEVICE names; else the CPU.
  at::Device device() const;
  const std::string& backend() const;  // "gloo", "nccl"; alone: empty
  bool use_distributed() const { return num_processes() > 1; }
  bool is_main_process() const { return process_index() == 0; }
  bool is_local_main_process() const { return local_process_index() == 0; }
  bool is_last_process() const { return process_index() == num_processes() - 1; }

  void wait_for_everyone() const;
  // The main process (of all, or of each machine) works before the others, who then find what it
  // left. What it throws does not keep them waiting.
  template <typename Work>
  void main_process_first(const Work& work) const {
    in_turn(is_main_process(), work);
  }
  template <typename Work>
  void local_main_process_first(const Work& work) const {
    in_turn(is_local_main_process(), work);
  }
  template <typename Work>
  void on_main_process(const Work& work) const {
    if (is_main_process()) work();
  }
  template <typename Work>
  void on_local_main_process(const Work& work) const {
    if (is_local_main_process()) work();
  }
  template <typename Work>
  void on_last_process(const Work& work) const {
    if (is_last_process()) work();
  }
  template <typename Work>
  void on_process(std::int64_t index, const Work& work) const {
    if (process_index() == index) work();
  }
  template <typename Work>
  void on_local_process(std::int64_t index, const Work& work) const {
    if (local_process_index() == index) work();
  }
  // A line on stdout, from the main process of each machine.
  void print(std::string_view line) const;

  // This process's part of the inputs, see split.h.
  template <typename T>
  Part<T> split_between_processes(const T& items, bool apply_padding = false) const {
    return part_for(items, process_index(), num_processes(), apply_padding);
  }
  // What all processes made of their parts, one for each item, in the order of the items and
  // without those of padding. Throws Error(kUsage), on every process, when one has not one result
  // for each of its items.
  template <typename T>
  std::vector<T> gather_split(const std::vector<T>& results, const Share& share) const;
  // Rows, which may differ in number from process to process but in nothing else.
  at::Tensor gather_split(const at::Tensor& results, const Share& share) const;

  // The tensors below take nested values too: vectors, maps by name and pairs of them.
  //
  // The tensors of all processes one after another along the first dimension; scalars become a row.
  // Throws Error(kUsage), on every process, when shapes or dtypes differ.
  template <typename T>
  T gather(const T& value) const {
    return over_tensors(value, [&](const at::Tensor& tensor) { return gather_tensor(tensor); });
  }
  // What process `from` has; the others give a tensor of the same shape and dtype.
  template <typename T>
  T broadcast(const T& value, std::int64_t from = 0) const {
    return over_tensors(value,
                        [&](const at::Tensor& tensor) { return broadcast_tensor(tensor, from); });
  }
  template <typename T>
  T reduce(const T& value, Reduction how = Reduction::kMean) const {
    return over_tensors(value,
                        [&](const at::Tensor& tensor) { return reduce_tensor(tensor, how); });
  }
  // Makes `dim` as long as the longest of all processes', with `pad` behind, or in front.
  template <typename T>
  T pad_across_processes(const T& value, std::int64_t dim = 0, double pad = 0,
                         bool pad_first = false) const {
    return over_tensors(
        value, [&](const at::Tensor& tensor) { return pad_tensor(tensor, dim, pad, pad_first); });
  }

  // The values of all processes, in their order: anything that torch's IValue holds (numbers,
  // strings, vectors, maps, tensors).
  template <typename T>
  std::vector<T> gather_object(const T& value) const {
    std::vector<T> values;
    for (const c10::IValue& one : gather_values(c10::IValue(value))) {
      values.push_back(one.to<T>());
    }
    return values;
  }
  template <typename T>
  T broadcast_object(const T& value, std::int64_t from = 0) const {
    return broadcast_value(c10::IValue(value), from).template to<T>();
  }

  // Ends the group. The next PartialState makes a new one.
  static void destroy_process_group();

  struct State;
  // For what haul itself builds on the group.
  State& state() const { return *state_; }

 private:
  template <typename Work>
  void in_turn(bool first, const Work& work) const {
    if (!first) wait_for_everyone();
    try {
      work();
    } catch (...) {
      if (first) wait_for_everyone();
      throw;
    }
    if (first) wait_for_everyone();
  }

  template <typename Function>
  static at::Tensor over_tensors(const at::Tensor& tensor, const Function& function) {
    return function(tensor);
  }
  template <typename T, typename Function>
  static std::vector<T> over_tensors(const std::vector<T>& values, const Function& function) {
    std::vector<T> result;
    result.reserve(values.size());
    for (const T& value : values) result.push_back(over_tensors(value, function));
    return result;
  }
  template <typename T, typename Function>
  static std::map<std::string, T> over_tensors(const std::map<std::string, T>& values,
                                               const Function& function) {
    std::map<std::string, T> result;
    for (const auto& [key, value] : values) result.emplace(key, over_tensors(value, function));
    return result;
  }
  template <typename A, typename B, typename Function>
  static std::pair<A, B> over_tensors(const std::pair<A, B>& values, const Function& function) {
    // In this order on every process.
    A first = over_tensors(values.first, function);
    B second = over_tensors(values.second, function);
    return {std::move(first), std::move(second)};
  }

  at::Tensor gather_tensor(const at::Tensor& tensor) const;
  at::Tensor broadcast_tensor(const at::Tensor& tensor, std::int64_t from) const;
  at::Tensor reduce_tensor(const at::Tensor& tensor, Reduction how) const;
  at::Tensor pad_tensor(const at::Tensor& tensor, std::int64_t dim, double pad,
                        bool pad_first) const;
  std::vector<c10::IValue> gather_values(const c10::IValue& value) const;
  c10::IValue broadcast_value(const c10::IValue& value, std::int64_t from) const;
  // How many of each process's results are no padding. Throws when one has too few or too many.
  std::vector<std::int64_t> results_of_each(std::int64_t results, const Share& share) const;

  std::shared_ptr<State> state_;
};

template <typename T>
std::vector<T> PartialState::gather_split(const std::vector<T>& results, const Share& share) const {
  const std::vector<std::int64_t> counts =
      results_of_each(static_cast<std::int64_t>(results.size()), share);
  std::vector<T> all;
  all.reserve(static_cast<std::size_t>(share.total));
  const std::vector<std::vector<T>> parts = gather_object(results);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    all.insert(all.end(), parts[p].begin(), parts[p].begin() + counts[p]);
  }
  return all;
}

}  // namespace haul
