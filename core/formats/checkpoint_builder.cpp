#include "core/formats/checkpoint_builder.h"

#include <utility>

#include <fmt/format.h>

#include "core/formats/tensor_size.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr std::size_t kMaxLfsPointer = 1024;

bool is_lfs_pointer(std::string_view text) {
  return text.size() <= kMaxLfsPointer && text.starts_with("version ") &&
         text.find("git-lfs") != text.npos && text.find("\noid ") != text.npos;
}

[[noreturn]] void refuse(const MappedFile& file, const StoredTensor& tensor, std::string why) {
  throw Error(ErrorKind::kCorrupt,
              fmt::format("{}: tensor '{}': {}", file.path().string(), tensor.name, why));
}

}  // namespace

CheckpointBuilder::CheckpointBuilder(CheckpointFormat format) {
  checkpoint_.format_ = format;
}

std::uint32_t CheckpointBuilder::add_file(const std::filesystem::path& path) {
  MappedFile file(path);
  if (is_lfs_pointer(file.text())) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: a Git LFS pointer, not the weights themselves", path.string()),
                "fetch the file's content with 'git lfs pull'");
  }
  checkpoint_.files_.push_back(std::move(file));
  return static_cast<std::uint32_t>(checkpoint_.files_.size() - 1);
}

void CheckpointBuilder::add(StoredTensor tensor) {
  const MappedFile& in = checkpoint_.files_.at(tensor.file);
  const Bytes available = in.bytes().size();
  if (tensor.offset > available || tensor.size > available - tensor.offset) {
    refuse(in, tensor,
           fmt::format("its {} bytes at {} reach beyond the file's end at {}", tensor.size,
                       tensor.offset, available));
  }
  if (tensor.coding == Coding::kPlain) {
    const bool strided = !tensor.strides.empty();
    const auto needed = strided ? checked_span(tensor.dtype, tensor.shape, tensor.strides)
                                : checked_size(tensor.dtype, tensor.shape);
    if (!needed) refuse(in, tensor, "its shape is not one of a tensor");
    if (*needed != tensor.size) {
      refuse(in, tensor,
             fmt::format("its shape needs {} bytes of {}, and it has {}", *needed,
                         name(tensor.dtype), tensor.size));
    }
  }
  checkpoint_.tensors_.push_back(std::move(tensor));
}

void CheckpointBuilder::note(std::string text) {
  checkpoint_.notes_.push_back(std::move(text));
}

void CheckpointBuilder::set_metadata(Json metadata) {
  if (checkpoint_.metadata_.is_null()) checkpoint_.metadata_ = std::move(metadata);
}

Checkpoint CheckpointBuilder::build() && {
  auto& by_name = checkpoint_.by_name_;
  by_name.reserve(checkpoint_.tensors_.size());
  for (std::uint32_t i = 0; i < checkpoint_.tensors_.size(); ++i) {
    const StoredTensor& tensor = checkpoint_.tensors_[i];
    const auto [place, added] = by_name.emplace(tensor.name, i);
    if (!added) {
      const StoredTensor& first = checkpoint_.tensors_[place->second];
      refuse(checkpoint_.files_[tensor.file], tensor,
             fmt::format("it is in {} already", checkpoint_.files_[first.file].path().string()));
    }
  }
  return std::move(checkpoint_);
}

}  // namespace haul::core
