// Any bytes as text, through a tokenizer of every shape: both routes give the same ids, and a
// stream gives the text that decoding at once gives.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "haul/error.h"
#include "haul/tokenizer.h"
#include "tests/support/small_tokenizers.h"

namespace {

const std::vector<haul::Tokenizer>& all() {
  static const std::vector<haul::Tokenizer> list = [] {
    std::vector<haul::Tokenizer> loaded;
    for (const std::string& json : haul::test::small_tokenizers()) {
      loaded.push_back(haul::Tokenizer::from_json(json, "fuzz"));
    }
    return loaded;
  }();
  return list;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const haul::Tokenizer& tokenizer = all()[data[0] % all().size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const std::vector<haul::TokenId> ids = tokenizer.encode_ids(text);
    if (ids != tokenizer.encode(text).ids) std::abort();
    haul::StreamDecoder stream = tokenizer.stream();
    std::string streamed;
    for (const haul::TokenId id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    if (streamed != tokenizer.decode(ids)) std::abort();
  } catch (const haul::Error& error) {
    if (error.kind() == haul::ErrorKind::kInternal) std::abort();
  }
  return 0;
}
