#include "core/describe/transformers_tensors.h"

#include <algorithm>
#include <utility>

#include "core/formats/cast.h"
#include "core/formats/tensor_stream.h"

namespace haul::core {
namespace {

void give_restored(const GgufPlace& place, Dtype dtype, std::span<const std::byte> from,
                   const std::function<void(std::span<const std::byte>)>& sink) {
  constexpr std::size_t kPiece = 8 * kMiB;
  const auto rows = static_cast<std::size_t>(place.shape.front());
  const std::size_t width = from.size() / rows;
  const std::size_t step = std::clamp<std::size_t>(kPiece / width, 1, rows);
  std::vector<std::byte> buffer;
  for (std::size_t row = 0; row < rows; row += step) {
    buffer.resize(std::min(step, rows - row) * width);
    restore_layout(place, static_cast<std::size_t>(bits(dtype)) / 8, from, buffer, row);
    sink(buffer);
  }
}

}  // namespace

TransformersTensors::TransformersTensors(const Checkpoint& checkpoint, std::optional<Dtype> dtype)
    : checkpoint_(&checkpoint) {
  std::optional<GgufModel> model;
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    if (GgufModel::knows(checkpoint)) {
      model.emplace(checkpoint);
      config_ = model->config();
      if (dtype) (*config_)["dtype"] = torch_name(*dtype);
    } else {
      note_ = "haul does not map this GGUF architecture: names and layout stay as in the file";
    }
  }
  for (const StoredTensor& stored : checkpoint.tensors()) {
    if (!model) {
      GgufPlace place;
      place.name = stored.name;
      place.shape = stored.shape;
      add(stored, std::move(place), dtype);
    } else if (auto place = model->place(stored)) {
      add(stored, std::move(*place), dtype);
    }
  }
}

void TransformersTensors::add(const StoredTensor& stored, GgufPlace place,
                              std::optional<Dtype> dtype) {
  const bool cast = dtype && is_castable(stored.dtype);
  headers_.push_back({place.name, cast ? *dtype : stored.dtype, place.shape});
  stored_.push_back(&stored);
  places_.push_back(std::move(place));
}

const StoredTensor* TransformersTensors::as_it_lies(std::size_t index) const {
  const StoredTensor& stored = *stored_[index];
  const bool plain = stored.coding == Coding::kPlain && stored.strides.empty() &&
                     places_[index].layout == GgufLayout::kSame;
  return plain ? &stored : nullptr;
}

void TransformersTensors::stream(
    std::size_t index, const std::function<void(std::span<const std::byte>)>& sink) const {
  stream(*stored_[index], places_[index], headers_[index].dtype, sink);
}

bool TransformersTensors::reads_part_alone(std::size_t index, const TensorCut& cut) const {
  const StoredTensor& stored = *stored_[index];
  const GgufLayout layout = places_[index].layout;
  const bool in_heads = layout == GgufLayout::kRotaryQuery || layout == GgufLayout::kRotaryKey;
  // A row is coded in blocks of its own.
  const bool in_rows = stored.coding == Coding::kPlain || stored.shape.size() > 1;
  return runs_of(headers_[index].shape, cut) == 1 && stored.strides.empty() && in_rows &&
         (layout == GgufLayout::kSame || in_heads);
}

void TransformersTensors::stream_part(
    std::size_t index, const TensorCut& cut, TensorPart part,
    const std::function<void(std::span<const std::byte>)>& sink) const {
  const Dtype dtype = headers_[index].dtype;
  if (!reads_part_alone(index, cut)) {
    const Bytes run = byte_count(dtype, headers_[index].shape) / runs_of(places_[index].shape, cut);
    stream(index, PartSink(run, part, sink));
    return;
  }
  StoredTensor stored = *stored_[index];
  stored.size /= static_cast<Bytes>(part.count);
  stored.offset += stored.size * static_cast<Bytes>(part.index);
  stored.shape.front() /= part.count;
  GgufPlace place = places_[index];
  place.shape.front() /= part.count;
  place.heads /= part.count;
  stream(stored, place, dtype, sink);
}

void TransformersTensors::stream(
    const StoredTensor& stored, const GgufPlace& place, Dtype dtype,
    const std::function<void(std::span<const std::byte>)>& sink) const {
  if (place.layout == GgufLayout::kSame) return stream_tensor(*checkpoint_, stored, dtype, sink);

  // Rows of rotated heads change places within their head.
  GgufPlace part = place;
  if (place.layout == GgufLayout::kRotaryQuery || place.layout == GgufLayout::kRotaryKey) {
    part.shape.front() /= place.heads;
    part.heads = 1;
  }
  const auto size = static_cast<std::size_t>(byte_count(dtype, part.shape));
  if (size == 0) return;
  std::vector<std::byte> collected;
  collected.reserve(size);
  stream_tensor(*checkpoint_, stored, dtype, [&](std::span<const std::byte> piece) {
    while (!piece.empty()) {
      const std::size_t count = std::min(piece.size(), size - collected.size());
      collected.insert(collected.end(), piece.begin(),
                       piece.begin() + static_cast<std::ptrdiff_t>(count));
      piece = piece.subspan(count);
      if (collected.size() < size) continue;
      give_restored(part, dtype, collected, sink);
      collected.clear();
    }
  });
}

}  // namespace haul::core
