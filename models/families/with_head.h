#pragma once

// A bare model under a linear head: logits of words, or scores of labels at the last token.

#include <memory>

#include "models/blocks/stock.h"
#include "models/families/model.h"
#include "models/families/tokens.h"

namespace haul::models {

// `Base` holds a Model that is made from a config, its part of the description and its dimensions,
// and has words(), the weight of its embedding, and for_head(), which is forward_part() with the
// norm at its end left to the head.
template <typename Base>
class WithHead : public Model {
 public:
  // `prefix` is the bare model's name.
  WithHead(const char* prefix, const core::ConfigReader& config, const Description& description)
      : prefix_(prefix),
        classifies_(has_child(description.root, "score")),
        padding_(padding_id(config)) {
    const ModuleSpec& root = description.root;
    base_ = register_module(prefix, Base(config, child(root, prefix), *description.dimensions));
    layers_ = base_->layers().size();
    const char* const name = classifies_ ? "score" : "lm_head";
    head_ = register_module(name, linear(root, name));
    if (!description.tied.empty()) head_->share(base_->words());
  }

  at::Tensor forward(const Inputs& inputs) override {
    return forward_part(inputs, {0, layers_}, {});
  }
  at::Tensor forward_part(const Inputs& inputs, const Layers& part, const at::Tensor& x) override {
    const Operand hidden = base_->for_head(inputs, part, x);
    return part.end < layers_ ? hidden.x : with_head(inputs, hidden);
  }
  std::vector<std::string> layers() const override {
    std::vector<std::string> names = base_->layers();
    for (std::string& name : names) name.insert(0, prefix_ + ".");
    return names;
  }
  at::Tensor hidden(const Inputs& inputs) override { return base_->forward(inputs); }
  std::vector<std::int64_t> windows() const override { return base_->windows(); }
  std::int64_t most_positions() const override { return base_->most_positions(); }
  bool can_be_replayed() const override { return base_->can_be_replayed(); }

 private:
  at::Tensor with_head(const Inputs& inputs, const Operand& hidden) {
    const at::Tensor scores = head_(hidden);
    return classifies_ ? of_last_token(scores, inputs.ids, padding_) : scores;
  }

  std::string prefix_;
  bool classifies_;
  std::optional<std::int64_t> padding_;
  Base base_{nullptr};
  std::size_t layers_ = 0;
  SharingLinear head_{nullptr};
};

// The bare model where the architecture is that, else the one under a head.
template <typename Base>
std::shared_ptr<Model> bare_or_with_head(const char* prefix, const core::ConfigReader& config,
                                         const Description& description) {
  if (has_child(description.root, prefix)) {
    return std::make_shared<WithHead<Base>>(prefix, config, description);
  }
  return Base(config, description.root, *description.dimensions).ptr();
}

}  // namespace haul::models
