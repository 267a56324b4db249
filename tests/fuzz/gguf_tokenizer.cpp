// Any bytes as a GGUF file with a tokenizer: refused, or its engine and the tokenizer.json written
// of it both load and, but for unigrams, which only the engine sums as sentencepiece does, agree.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/formats/gguf.h"
#include "haul/error.h"
#include "haul/tokenizer.h"
#include "tokenizers/gguf_files.h"
#include "tokenizers/sources.h"
#include "tokenizers/state.h"

namespace {

constexpr const char* kText = "The 12 na\u00efve foxes\u00a0  aren't <s> \u4e2d\u6587 \u2581a ";

std::optional<std::vector<haul::TokenId>> encode(const haul::Tokenizer& tokenizer) {
  try {
    std::vector<haul::TokenId> ids = tokenizer.encode_ids(kText);
    tokenizer.decode(ids);
    return ids;
  } catch (const haul::Error& error) {
    if (error.kind() == haul::ErrorKind::kInternal) std::abort();
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::optional<haul::Tokenizer> engine;
  std::vector<haul::tokenizers::TextFile> files;
  bool is_unigram = false;
  try {
    const auto header = haul::core::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz");
    engine.emplace(
        std::make_shared<haul::Tokenizer::State>(haul::tokenizers::read_gguf(header, "fuzz")));
    files = haul::tokenizers::make_gguf_files(header, "fuzz");
    is_unigram = header.find("tokenizer.ggml.model")->text() == "t5";
  } catch (const haul::Error&) {
    return 0;
  }
  const haul::Tokenizer written = haul::Tokenizer::from_json(files.at(0).text, "written");
  const auto ids = encode(*engine);
  if (encode(written) != ids && !is_unigram) std::abort();
  return 0;
}
