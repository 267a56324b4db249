#pragma once

// The few collectives that everything else is made of, over one process or many. One thread at a
// time. Failures are Error(kResource) that say which process failed at what.

#include <chrono>
#include <cstdint>
#include <memory>
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
