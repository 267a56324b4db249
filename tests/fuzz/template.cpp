// Any bytes as a chat template, rendered on a small chat: text or an Error.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/json.h"
#include "haul/error.h"
#include "tokenizers/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const haul::core::Json kContext = haul::core::parse_json(R"({
    "messages": [{"role": "user", "content": "h\u00e9 \ud83d\ude00"},
                 {"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": []}],
    "tools": null, "add_generation_prompt": true, "bos_token": "<s>", "n": 7, "f": 0.5,
    "d": {"a": 1, "items": [1, 2, 3]}})",
                                                                  "context");
  try {
    haul::tokenizers::ChatTemplate({reinterpret_cast<const char*>(data), size}, "t")
        .render(kContext, 0);
  } catch (const haul::Error&) {
  }
  return 0;
}
