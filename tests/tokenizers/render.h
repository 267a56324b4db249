#pragma once

#include <string>
#include <string_view>

#include "core/base/json.h"
#include "tokenizers/chat_template.h"

namespace haul::test {

// What a template gives for a context that is written as JSON.
inline std::string render(std::string_view source, std::string_view context = "{}") {
  return tokenizers::ChatTemplate(source, "t").render(core::parse_json(context, "context"));
}

// What an expression prints.
inline std::string print(std::string_view expression, std::string_view context = "{}") {
  return render("{{ " + std::string(expression) + " }}", context);
}

}  // namespace haul::test
