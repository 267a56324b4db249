#pragma once

// Layers that several processes share, each with a part of their inputs or of their heads. A model
// that one process has alone is not touched by this. One thread.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace haul::models {

// Of what the same layer gives in every process; the result is the same in all of them.
using Sum = std::function<at::Tensor(const at::Tensor&)>;

// A layer that may have a part of its inputs alone.
class PartOfSum {
 public:
  virtual ~PartOfSum() = default;
  void spread(Sum sum) { sum_ = std::move(sum); }

 protected:
  bool is_spread() const { return sum_ != nullptr; }
  // The product with the inputs that are here, made whole, and the bias added once.
  at::Tensor whole(const at::Tensor& product, const at::Tensor& bias) const;

 private:
  Sum sum_;  // empty: it has all of them
};

// A model whose heads differ by their number.
class NumberedHeads {
 public:
  virtual ~NumberedHeads() = default;
  // It has those from `first` on, of `all`.
  virtual void take_heads(std::int64_t first, std::int64_t all) = 0;
};

// Makes a model that was built with some of the heads and the inner widths part of a larger one:
// its modules `summed` add up by `sum`, and it has the heads from `first_head` on, of `heads`.
void spread_over_processes(torch::nn::Module& model, const std::vector<std::string>& summed,
                           const Sum& sum, std::int64_t first_head, std::int64_t heads);

}  // namespace haul::models
