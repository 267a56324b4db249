#pragma once

// Typed, bounded reads of a GGUF checkpoint's metadata. Keys are those behind the architecture's
// name: "block_count" reads "llama.block_count". Failures are Errors that name the file and the
// key. Holds a reference: the checkpoint must outlive it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/describe/config_reader.h"
#include "core/formats/checkpoint.h"

namespace haul::core {

class GgufSource {
 public:
  // Throws Error(kCorrupt) when the metadata does not name the architecture.
  explicit GgufSource(const Checkpoint& checkpoint);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const std::string& architecture() const { return architecture_; }
  // The file, for messages.
  const std::string& name() const { return name_; }

  // 1 to 2^31. A list with one value for each block counts where all are equal; others are
  // Error(kUnsupported).
  std::int64_t size(std::string_view key) const;
  std::optional<std::int64_t> optional_size(std::string_view key) const;
  double number(std::string_view key) const;
  std::optional<double> optional_number(std::string_view key) const;
  std::string text(std::string_view key, std::string_view missing) const;

  bool has(std::string_view tensor) const { return checkpoint_->find(tensor) != nullptr; }
  // The first dimension of a tensor that must be there.
  std::int64_t rows(std::string_view tensor) const;

  // Puts the ids of the tokens that begin, end and pad a text into a config, where they are known.
  void add_token_ids(Json* config) const;

 private:
  std::string full(std::string_view key) const { return architecture_ + "." + std::string(key); }
  [[noreturn]] void missing(std::string_view key) const;

  const Checkpoint* checkpoint_;
  std::string name_;
  ConfigReader reader_;
  std::string architecture_;
};

}  // namespace haul::core
