// write_offload_folder CHECKPOINT FOLDER: every other tensor as a .dat file, the rest as references
// into the checkpoint's own files. For tests that let another program read the folder.

#include <cstdio>

#include "core/formats/checkpoint.h"
#include "core/formats/offload_folder.h"
#include "haul/error.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const auto checkpoint = haul::core::Checkpoint::open(argv[1]);
    haul::core::OffloadFolderWriter writer(argv[2]);
    bool copy = false;
    for (const auto& tensor : checkpoint.tensors()) {
      copy = !copy;
      if (copy) {
        writer.add(tensor.name, tensor.dtype, tensor.shape, checkpoint.bytes(tensor));
      } else {
        writer.add_reference(tensor.name, checkpoint.files()[tensor.file].path(), tensor.name,
                             tensor.dtype);
      }
    }
    writer.commit();
  } catch (const haul::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
