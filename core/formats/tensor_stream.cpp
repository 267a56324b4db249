#include "core/formats/tensor_stream.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/formats/cast.h"
#include "core/formats/dequantise.h"
#include "core/formats/ggml_type.h"

namespace haul::core {
namespace {

using Buffer = std::vector<std::byte>;
using Sink = std::function<void(std::span<const std::byte>)>;

constexpr std::size_t kPiece = 1 * kMiB;  // several threads have one each, which stays in a cache

bool is_contiguous(const StoredTensor& tensor) {
  if (tensor.strides.empty() || tensor.size == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

void stream_contiguous(const MappedFile& file, const StoredTensor& tensor, const Sink& sink) {
  for (Bytes done = 0; done < tensor.size; done += kPiece) {
    const Bytes size = std::min<Bytes>(kPiece, tensor.size - done);
    sink(file.bytes().subspan(tensor.offset + done, size));
    file.drop(tensor.offset + done, size);
  }
}

void stream_quantised(const MappedFile& file, const StoredTensor& tensor, const Sink& sink) {
  const GgmlType& type = ggml_type(tensor.coding);
  const Bytes blocks = tensor.size / type.block_bytes;
  const Bytes step = std::max<Bytes>(1, kPiece / sizeof(float) / type.block_elements);
  std::vector<float> values(std::min(step, blocks) * type.block_elements);
  for (Bytes done = 0; done < blocks; done += step) {
    const Bytes count = std::min(step, blocks - done);
    const Bytes begin = tensor.offset + done * type.block_bytes;
    const auto part = std::span(values).first(count * type.block_elements);
    dequantise(tensor.coding, file.bytes().subspan(begin, count * type.block_bytes), part);
    sink(std::as_bytes(part));
    file.drop(begin, count * type.block_bytes);
  }
}

// Walks a view in C order and copies its elements of one width.
template <std::size_t kWidth>
void stream_strided(const MappedFile& file, const StoredTensor& tensor, const Sink& sink) {
  const std::size_t rank = tensor.shape.size();
  const auto inner = static_cast<std::size_t>(tensor.shape[rank - 1]);
  const auto inner_step = static_cast<std::size_t>(tensor.strides[rank - 1]) * kWidth;
  std::uint64_t rows = 1;
  for (std::size_t d = 0; d + 1 < rank; ++d) rows *= static_cast<std::uint64_t>(tensor.shape[d]);
  const std::byte* const base = file.bytes().data() + tensor.offset;

  Buffer buffer;
  buffer.reserve(std::min<std::size_t>(kPiece, rows * inner * kWidth));
  std::vector<std::int64_t> index(rank, 0);
  for (std::uint64_t row = 0; row < rows; ++row) {
    std::uint64_t offset = 0;
    for (std::size_t d = 0; d + 1 < rank; ++d) {
      offset += static_cast<std::uint64_t>(index[d] * tensor.strides[d]);
    }
    const std::byte* source = base + offset * kWidth;
    for (std::size_t done = 0; done < inner;) {
      const std::size_t room = kPiece / kWidth - buffer.size() / kWidth;
      const std::size_t count = std::min(room, inner - done);
      const std::size_t begin = buffer.size();
      buffer.resize(begin + count * kWidth);
      for (std::size_t i = 0; i < count; ++i, source += inner_step) {
        std::memcpy(buffer.data() + begin + i * kWidth, source, kWidth);
      }
      done += count;
      if (buffer.size() == kPiece) {
        sink(buffer);
        buffer.clear();
      }
    }
    for (std::size_t d = rank - 1; d-- > 0;) {
      if (++index[d] < tensor.shape[d]) break;
      index[d] = 0;
    }
  }
  if (!buffer.empty()) sink(buffer);
  file.drop(tensor.offset, tensor.size);
}

void stream_stored(const MappedFile& file, const StoredTensor& tensor, const Sink& sink) {
  if (tensor.coding != Coding::kPlain) return stream_quantised(file, tensor, sink);
  if (is_contiguous(tensor)) return stream_contiguous(file, tensor, sink);
  switch (bits(tensor.dtype)) {
    case 8:
      return stream_strided<1>(file, tensor, sink);
    case 16:
      return stream_strided<2>(file, tensor, sink);
    case 32:
      return stream_strided<4>(file, tensor, sink);
    default:
      return stream_strided<8>(file, tensor, sink);
  }
}

}  // namespace

void stream_tensor(const Checkpoint& checkpoint, const StoredTensor& tensor, Dtype as,
                   const Sink& sink) {
  const MappedFile& file = checkpoint.files()[tensor.file];
  if (as == tensor.dtype) return stream_stored(file, tensor, sink);
  Buffer cast;
  stream_stored(file, tensor, [&](std::span<const std::byte> piece) {
    cast.resize(piece.size() * static_cast<std::size_t>(bits(as)) /
                static_cast<std::size_t>(bits(tensor.dtype)));
    cast_floats(tensor.dtype, piece, as, cast);
    sink(cast);
  });
}

}  // namespace haul::core
