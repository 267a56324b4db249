// A sentencepiece model of any bytes: it loads and encodes, or throws Error.

#include <cstddef>
#include <cstdint>

#include "haul/error.h"
#include "haul/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const haul::Tokenizer tokenizer =
        haul::Tokenizer::from_sentencepiece({reinterpret_cast<const char*>(data), size}, "fuzz");
    const haul::Encoding encoding = tokenizer.encode("  The 12 naïve  foxes\u00a0 ａ <s> 中文 ");
    tokenizer.decode(encoding.ids);
  } catch (const haul::Error&) {
  }
  return 0;
}
