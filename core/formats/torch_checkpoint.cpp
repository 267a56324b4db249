#include <string>
#include <utility>

#include "core/formats/checkpoint_builder.h"
#include "core/formats/torch_zip.h"
#include "haul/error.h"

namespace haul::core {

void add_torch_zip(CheckpointBuilder& builder, const std::filesystem::path& path) {
  const std::uint32_t file = builder.add_file(path);
  TorchZip content;
  try {
    content = read_torch_zip(builder.file(file).bytes());
  } catch (Error& error) {
    error.add_context(path.string());
    throw;
  }
  for (StoredTensor& tensor : content.tensors) {
    tensor.file = file;
    builder.add(std::move(tensor));
  }
  for (const std::string& note : content.notes) builder.note(path.string() + ": " + note);
}

}  // namespace haul::core
