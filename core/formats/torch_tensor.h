#pragma once

// Tensors of a torch archive: from the calls that its pickle notes to places in the file. Pure.

#include <optional>
#include <string_view>
#include <vector>

#include "core/formats/checkpoint.h"
#include "core/formats/pickle.h"
#include "core/formats/torch_globals.h"
#include "core/formats/zip.h"

namespace haul::core {

class TorchTensors {
 public:
  // `folder` is the archive's top folder with its slash. All three must outlive the object.
  TorchTensors(const Pickle& pickle, const ZipDirectory& archive, std::string_view folder)
      : pickle_(pickle), archive_(archive), folder_(folder) {}

  // Whether a value is a tensor of any kind, also of one that cannot be read.
  bool is_tensor(Pickle::Id id) const;

  // Where the tensor lies; the name is left empty. Throws Error(kUnsupported) for tensors that are
  // not dense, elements that haul lacks and lazily conjugated or negated views, Error(kCorrupt) for
  // a storage that is missing or has another size, and for a view that leaves its storage.
  StoredTensor read(Pickle::Id id) const;

 private:
  struct Storage {
    const ZipEntry* entry = nullptr;
    std::optional<Dtype> dtype;  // none: untyped
  };

  StoredTensor read_dense(std::string_view function, Pickle::Id arguments) const;
  Storage read_storage(Pickle::Id id) const;
  std::int64_t read_integer(Pickle::Id id, std::string_view what) const;
  std::vector<std::int64_t> read_integers(Pickle::Id id, std::string_view what) const;
  void check_metadata(Pickle::Id id) const;
  const TorchGlobal* global(Pickle::Id id) const;

  const Pickle& pickle_;
  const ZipDirectory& archive_;
  std::string_view folder_;
};

}  // namespace haul::core
