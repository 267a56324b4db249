#pragma once

// The few collectives that everything else is made of, over one process or many. One thread at a
// time. Failures are Error(kResource) that say which process failed at what.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/launch/rank_environment.h"

namespace haul::distributed {

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& backend() const = 0;

  // Tensors of any dtype that lie anywhere, with the same shape and dtype in every process.
  virtual std::vector<at::Tensor> all_gather(const at::Tensor& tensor) = 0;
  virtual at::Tensor broadcast(const at::Tensor& tensor, int from) = 0;
  virtual at::Tensor sum(const at::Tensor& tensor) = 0;
  virtual void barrier() = 0;

  // To and from one other process, as the same bytes, in the order of the calls. `send` does not
  // wait for the other; the tensor must stay as it is until finish_sends() has returned. `receive`
  // fills a contiguous tensor of as many bytes as were sent.
  virtual void send(const at::Tensor& tensor, int to) = 0;
  virtual void receive(const at::Tensor& tensor, int from) = 0;
  // The same in two steps: what is sent may come while the caller does something else, and has come
  // when the returned function ends. Receives end in the order in which they begin.
  virtual std::function<void()> begin_receive(const at::Tensor& tensor, int from) = 0;
  virtual void finish_sends() = 0;

  // What processes leave for each other without waiting. `add` gives the sum that a counter then
  // has; `take` what was posted under a name, which nobody finds any more, or nothing.
  virtual std::int64_t add(const std::string& counter, std::int64_t number) = 0;
  virtual void post(const std::string& name, const std::string& text) = 0;
  virtual std::optional<std::string> take(const std::string& name) = 0;
};

std::unique_ptr<Group> make_group_of_one();

struct GroupPlace {
  core::RankEnvironment environment;
  at::Device device = at::kCPU;
  std::chrono::seconds timeout{0};
};
// Waits until all processes are there.
std::unique_ptr<Group> make_gloo_group(const GroupPlace& place);
// For GPUs. Throws Error(kUnsupported) where haul was built without CUDA.
std::unique_ptr<Group> make_nccl_group(const GroupPlace& place);

}  // namespace haul::distributed
