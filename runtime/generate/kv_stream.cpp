#include "runtime/generate/kv_stream.h"

#include <utility>

#include "haul/error.h"

namespace haul::runtime {
namespace {

using models::KeysValues;

class GpuKvLink final : public KvLink {
 public:
  explicit GpuKvLink(int gpu) : gpu_(gpu), copies_(gpu) {}

  void after_work() override { copies_.wait(point_of_current_stream(gpu_)); }
  void copy(void* to, Bytes to_step, const void* from, Bytes from_step, Bytes width,
            Bytes count) override {
    if (count == 1) {
      copies_.copy(to, from, width);  // rows have at most 2 GB
    } else {
      copies_.copy_rows(to, to_step, from, from_step, width, count);
    }
  }
  GpuPoint point() override { return copies_.point(); }
  void wait(const GpuPoint& point) override { current_stream_waits(gpu_, point); }
  void settle() override { wait_for(copies_.point()); }

 private:
  int gpu_;
  CopyStream copies_;
};

// The tokens [begin, end) of some sequences.
KeysValues part(const KeysValues& all, const KvStream::Span& span, std::int64_t begin,
                std::int64_t end) {
  const auto of = [&](const at::Tensor& x) {
    return x.narrow(0, span.first_row, span.rows).narrow(2, begin, end - begin);
  };
  return {of(all.keys), of(all.values)};
}

}  // namespace

std::unique_ptr<KvLink> make_kv_link(int gpu) {
  return std::make_unique<GpuKvLink>(gpu);
}

KvStream::KvStream(std::unique_ptr<KvLink> link, std::size_t layers, MakeSlot make_slot)
    : kept_(layers), make_slot_(std::move(make_slot)), link_(std::move(link)) {}

models::KeysValues KvStream::places(std::size_t layer, const KeysValues& kept,
                                    const KeysValues& like, const Span& span) {
  kept_[layer] = kept;
  link_->after_work();  // of the layer before: its slot is the next one's
  write_back();
  bring(layer, span, like);
  if (layer + 1 < kept_.size() && kept_[layer + 1].keys.defined()) bring(layer + 1, span, like);
  Slot& slot = slot_of(layer);
  link_->wait(slot.ready);
  slot.held = span;
  added_ = {layer, span};
  return part(slot.memory, span, 0, span.end);
}

void KvStream::end_pass(std::int64_t tokens) {
  link_->after_work();
  write_back();
  for (std::size_t layer = 0; tokens > 0 && layer < kept_.size(); ++layer) {
    const KeysValues& kept = kept_[layer];
    if (!kept.keys.defined()) continue;
    bring(layer, {0, kept.keys.size(0), tokens, tokens}, kept);
    return;
  }
}

void KvStream::settle() {
  link_->after_work();
  write_back();
  link_->settle();
  for (Slot& slot : slots_) slot = {};  // the next ones may be of another size
  for (KeysValues& kept : kept_) kept = {};
}

// What a pass looks at before its own tokens.
void KvStream::bring(std::size_t layer, const Span& span, const KeysValues& like) {
  Slot& slot = slot_of(layer);
  const KeysValues& kept = kept_[layer];
  if (!slot.memory.keys.defined()) {
    const auto all = [&](const at::Tensor& x) {
      return x.narrow(0, 0, 1).expand({kept.keys.size(0), -1, -1, -1});
    };
    slot.memory = make_slot_({all(like.keys), all(like.values)});
  }
  if (slot.memory.keys.sizes() != kept.keys.sizes() ||
      slot.memory.values.sizes() != kept.values.sizes()) {
    throw Error(ErrorKind::kInternal, "keys and values in RAM are of one size in all layers");
  }
  const bool same_rows = slot.held.first_row == span.first_row && slot.held.rows == span.rows;
  if (slot.layer == layer && same_rows && slot.held.end == span.past) return;
  slot.layer = layer;
  slot.held = {span.first_row, span.rows, span.past, span.past};
  if (span.past == 0) return;
  copy(part(slot.memory, span, 0, span.past), part(kept, span, 0, span.past));
  slot.ready = link_->point();
}

void KvStream::write_back() {
  if (!added_) return;
  const Span& span = added_->span;
  Slot& slot = slot_of(added_->layer);
  copy(part(kept_[added_->layer], span, span.past, span.end),
       part(slot.memory, span, span.past, span.end));
  slot.ready = link_->point();
  added_.reset();
}

// Of one size, tokens of some sequences.
void KvStream::copy(const KeysValues& to, const KeysValues& from) {
  const auto each = [&](const at::Tensor& into, const at::Tensor& out) {
    const auto element = static_cast<Bytes>(into.element_size());
    const Bytes width = static_cast<Bytes>(into.size(0) * into.size(1) * into.size(3)) * element;
    const auto step = [&](const at::Tensor& x) {
      return static_cast<Bytes>(x.stride(2)) * element;
    };
    const auto tokens = static_cast<Bytes>(into.size(2));
    const bool whole = step(into) == width && step(out) == width;
    link_->copy(into.mutable_data_ptr(), step(into), out.const_data_ptr(), step(out),
                whole ? width * tokens : width, whole ? 1 : tokens);
  };
  each(to.keys, from.keys);
  each(to.values, from.values);
}

}  // namespace haul::runtime
