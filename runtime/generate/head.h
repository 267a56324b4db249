#pragma once

// What stands on top of a model, by the name of its class.

#include <string_view>

namespace haul::runtime {

inline bool labels_texts(std::string_view architecture) {
  return architecture.ends_with("ForSequenceClassification");
}

inline bool fills_masks(std::string_view architecture) {
  return architecture.ends_with("ForMaskedLM");
}

inline bool continues_texts(std::string_view architecture) {
  return architecture.ends_with("LMHeadModel") || architecture.ends_with("ForCausalLM") ||
         architecture.ends_with("ForConditionalGeneration");
}

}  // namespace haul::runtime
