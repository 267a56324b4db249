#include "core/describe/gguf_model.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::core {

extern const GgufFamily kLlamaGguf;
extern const GgufFamily kMistral3Gguf;
extern const GgufFamily kQwen2Gguf;
extern const GgufFamily kQwen3Gguf;
extern const GgufFamily kGpt2Gguf;
extern const GgufFamily kBertGguf;
extern const GgufFamily kBloomGguf;
extern const GgufFamily kT5Gguf;
extern const GgufFamily kT5EncoderGguf;

namespace {

// A tensor's name in its parts: "blk.7.attn_q.weight" is "blk.#.attn_q", "7" and ".weight".
struct NameParts {
  std::string stem;
  std::string_view block;
  std::string_view suffix;
};

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

NameParts split_name(std::string_view name) {
  NameParts parts;
  for (const std::string_view suffix : {".weight", ".bias"}) {
    if (!name.ends_with(suffix)) continue;
    parts.suffix = name.substr(name.size() - suffix.size());
    name.remove_suffix(suffix.size());
    break;
  }
  while (!name.empty()) {
    const std::string_view segment = name.substr(0, name.find('.'));
    if (!parts.stem.empty()) parts.stem += '.';
    if (parts.block.empty() && is_number(segment)) {
      parts.block = segment;
      parts.stem += '#';
    } else {
      parts.stem += segment;
    }
    name.remove_prefix(std::min(segment.size() + 1, name.size()));
  }
  return parts;
}

std::string joined_name(std::string_view pattern, const NameParts& parts) {
  std::string name(pattern);
  const std::size_t at = name.find('#');
  if (at != name.npos) name.replace(at, 1, parts.block);
  return name.append(parts.suffix);
}

// How the rows of a tensor move: row `to` of the result is row source_row(to) of the file.
std::size_t source_row(const GgufPlace& place, std::size_t rows, std::size_t to) {
  const auto heads = static_cast<std::size_t>(place.heads);
  if (place.layout == GgufLayout::kJoinedHeads) {
    const std::size_t size = rows / heads / 3;  // D
    const std::size_t head = to / (3 * size);
    const std::size_t part = to / size % 3;
    return (part * heads + head) * size + to % size;
  }
  const std::size_t size = rows / heads;
  const std::size_t within = to % size;
  const std::size_t half = within / (size / 2);
  return to - within + within % (size / 2) * 2 + half;
}

// Rows [first, last) of the transposed matrix.
void transpose(const GgufPlace& place, std::size_t element, const std::byte* from,
               std::size_t first, std::size_t last, std::byte* to) {
  const auto rows = static_cast<std::size_t>(place.shape[0]);
  const auto columns = static_cast<std::size_t>(place.shape[1]);
  // In tiles, so that both sides stay in the cache.
  constexpr std::size_t kTile = 32;
  for (std::size_t r0 = first; r0 < last; r0 += kTile) {
    for (std::size_t c0 = 0; c0 < columns; c0 += kTile) {
      for (std::size_t r = r0; r < std::min(last, r0 + kTile); ++r) {
        for (std::size_t c = c0; c < std::min(columns, c0 + kTile); ++c) {
          std::memcpy(to + ((r - first) * columns + c) * element, from + (c * rows + r) * element,
                      element);
        }
      }
    }
  }
}

}  // namespace

const GgufFamily* find_gguf_family(std::string_view architecture) {
  static const std::array kFamilies = {
      &kLlamaGguf, &kMistral3Gguf, &kQwen2Gguf, &kQwen3Gguf,     &kGpt2Gguf,
      &kBertGguf,  &kBloomGguf,    &kT5Gguf,    &kT5EncoderGguf,
  };
  for (const GgufFamily* family : kFamilies) {
    if (family->architecture == architecture) return family;
  }
  return nullptr;
}

bool GgufModel::knows(const Checkpoint& checkpoint) {
  return find_gguf_family(GgufSource(checkpoint).architecture()) != nullptr;
}

GgufModel::GgufModel(const Checkpoint& checkpoint) {
  const GgufSource source(checkpoint);
  source_ = source.name();
  const GgufFamily* family = find_gguf_family(source.architecture());
  if (family == nullptr) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: the architecture \"{}\" is not one that haul maps from GGUF",
                            source_, source.architecture()),
                "a safetensors checkpoint of the model may be one that haul can read");
  }
  facts_ = family->read(source);
}

std::optional<GgufPlace> GgufModel::place(const StoredTensor& tensor) const {
  const NameParts parts = split_name(tensor.name);
  const auto found = std::find_if(facts_.names.begin(), facts_.names.end(),
                                  [&](const GgufName& name) { return name.gguf == parts.stem; });
  if (found == facts_.names.end()) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: tensor '{}' is not part of {} as haul knows it", source_,
                            tensor.name, facts_.config.at("architectures").front().dump()));
  }
  if (found->transformers.empty()) return std::nullopt;
  GgufPlace place;
  place.name = joined_name(found->transformers, parts);
  place.shape = tensor.shape;
  place.layout = found->layout;
  switch (found->layout) {
    case GgufLayout::kSame:
      return place;
    case GgufLayout::kTransposed:
      if (place.shape.size() == 2) {
        std::swap(place.shape[0], place.shape[1]);
      } else {
        place.layout = GgufLayout::kSame;
      }
      return place;
    case GgufLayout::kRotaryQuery:
    case GgufLayout::kJoinedHeads:
      place.heads = facts_.heads;
      break;
    case GgufLayout::kRotaryKey:
      place.heads = facts_.key_heads;
      break;
  }
  const std::int64_t parts_of_head = place.layout == GgufLayout::kJoinedHeads ? 3 : 2;
  const std::int64_t rows = place.shape.empty() ? 1 : place.shape.front();
  if (rows % (place.heads * parts_of_head) != 0) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: tensor '{}' has {} rows, which do not divide among {} heads",
                            source_, tensor.name, rows, place.heads));
  }
  return place;
}

std::vector<HeaderTensor> transformers_tensors(const GgufModel& model,
                                               const Checkpoint& checkpoint) {
  std::vector<HeaderTensor> tensors;
  for (const StoredTensor& stored : checkpoint.tensors()) {
    auto place = model.place(stored);
    if (!place) continue;
    tensors.push_back({std::move(place->name), stored.dtype, std::move(place->shape)});
  }
  return tensors;
}

void restore_layout(const GgufPlace& place, std::size_t element, std::span<const std::byte> from,
                    std::span<std::byte> to, std::size_t first_row) {
  if (to.empty()) return;
  const auto rows = static_cast<std::size_t>(place.shape.empty() ? 1 : place.shape.front());
  const std::size_t width = from.size() / rows;  // in bytes
  if (place.layout == GgufLayout::kSame) {
    std::memcpy(to.data(), from.data() + first_row * width, to.size());
    return;
  }
  const std::size_t last_row = first_row + to.size() / width;
  if (place.layout == GgufLayout::kTransposed) {
    transpose(place, element, from.data(), first_row, last_row, to.data());
    return;
  }
  for (std::size_t row = first_row; row < last_row; ++row) {
    std::memcpy(to.data() + (row - first_row) * width,
                from.data() + source_row(place, rows, row) * width, width);
  }
}

}  // namespace haul::core
