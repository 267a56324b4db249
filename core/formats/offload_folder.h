#pragma once

// The folder into which Accelerate offloads weights: one file NAME.dat a tensor, its elements in
// C order without a header, and an index.json with dtype and shape of each. An entry may instead
// point at a tensor of a safetensors file.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/big_json.h"
#include "core/formats/checkpoint_builder.h"
#include "haul/bytes.h"
#include "haul/description.h"
#include "haul/dtype.h"

namespace haul::core {

struct OffloadEntry {
  std::string name;
  // Of a .dat file. For an entry that points elsewhere only the dtype, and only where it is given:
  // the type that the weight is wanted in, which may not be the stored one.
  std::optional<Dtype> dtype;
  Shape shape;
  // Empty for a .dat file.
  std::string safetensors_file;
  std::string weight_name;
};

// Reads an index.json. Throws Error(kCorrupt) that names `source` and the tensor, also for names
// that would leave the folder.
std::vector<OffloadEntry> read_offload_index(simdjson::dom::element root, std::string_view source);

// Adds every tensor of the folder in which the index lies. A relative safetensors_file is looked
// for in the working folder, where Accelerate looks, and then beside the index.
void add_offload_folder(CheckpointBuilder& builder, const std::filesystem::path& index_path,
                        simdjson::dom::element root);

// Writes such a folder. An index.json that is there is removed first and the new one comes last,
// so a folder that was not finished never looks like a whole one. One thread.
class OffloadFolderWriter {
 public:
  // Creates the folder where it is missing.
  explicit OffloadFolderWriter(std::filesystem::path folder);

  // Writes NAME.dat. Throws Error(kUnsupported) for dtypes that the layout has no name for and
  // for names that cannot be a file's, Error(kUsage) for a name that was written before.
  void add(const std::string& name, Dtype dtype, const Shape& shape,
           std::span<const std::byte> bytes);
  // Records where a tensor lies instead of copying it. The path is made absolute.
  void add_reference(const std::string& name, const std::filesystem::path& safetensors_file,
                     const std::string& weight_name, Dtype dtype);
  // Writes the index. Nothing may be added afterwards.
  void commit();

 private:
  void record(const std::string& name, Json entry);

  std::filesystem::path folder_;
  std::vector<std::pair<std::string, Json>> entries_;
  std::unordered_set<std::string> seen_;
};

}  // namespace haul::core
