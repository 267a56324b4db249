#pragma once

// The metadata of a GGUF file under "tokenizer.", checked. Views into the header's bytes, which
// must outlive it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/gguf.h"
#include "tokenizers/sentencepiece.h"

namespace haul::tokenizers {

struct GgufTokens {
  std::vector<std::string_view> texts;  // UTF-8
  std::vector<PieceType> types;         // as long as texts
};

class GgufMetadata {
 public:
  GgufMetadata(const core::GgufHeader& header, std::string_view source)
      : header_(header), source_(source) {}

  std::string_view source() const { return source_; }
  const core::GgufHeader& header() const { return header_; }

  // Keys are given without "tokenizer.". What is of another kind than asked for is passed over.
  const core::GgufValue* find(std::string_view key) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::string_view text(std::string_view key) const;  // UTF-8; empty where there is none
  std::vector<std::string_view> texts(std::string_view key) const;  // must be there, UTF-8
  GgufTokens tokens() const;

  [[noreturn]] void refuse(std::string_view what) const;  // Error(kCorrupt)

 private:
  const core::GgufHeader& header_;
  std::string_view source_;
};

}  // namespace haul::tokenizers
