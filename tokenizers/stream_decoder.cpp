// Decoding while ids arrive. The text of a window of ids is compared with that of the same window
// before the last ids came: what it grew by is new. The window slides, so that a step costs no more
// as the text grows.

#include "haul/error.h"
#include "tokenizers/state.h"
#include "tokenizers/utf8.h"

namespace haul {
namespace {

constexpr std::string_view kReplacementBytes = "\xEF\xBF\xBD";
// How much of the text's end a clean-up of spaces may still change.
constexpr std::size_t kCleanUpReach = 8;

}  // namespace

std::string StreamDecoder::text_from(std::size_t first) const {
  return tokenizers::decode(state_->pipeline, std::span(ids_).subspan(first), skip_special_tokens_);
}

std::string StreamDecoder::push(TokenId id) {
  ids_.push_back(id);
  const tokenizers::Pipeline& pipeline = state_->pipeline;
  if (pipeline.decoder != nullptr && !pipeline.decoder->is_local()) return {};
  std::string text = text_from(window_);
  // An unfinished character, or one that the next ids may still change.
  if (text.ends_with(kReplacementBytes)) return {};
  if (pipeline.clean_up_spaces) {
    // The clean-up reaches over tokens: decode everything, and hold the end back.
    if (text.size() <= kCleanUpReach) return {};
    std::size_t end = text.size() - kCleanUpReach;
    while (end > 0 && tokenizers::is_continuation(text[end])) --end;
    if (end <= all_emitted_.size() || !text.starts_with(all_emitted_)) return {};
    std::string fresh = text.substr(all_emitted_.size(), end - all_emitted_.size());
    all_emitted_ += fresh;
    return fresh;
  }
  if (text.size() <= emitted_text_.size() || !text.starts_with(emitted_text_)) return {};
  std::string fresh = text.substr(emitted_text_.size());
  all_emitted_ += fresh;
  // The next window begins where the last emitted ids began.
  window_ = emitted_;
  emitted_ = ids_.size();
  emitted_text_ = text_from(window_);
  return fresh;
}

std::string StreamDecoder::finish() {
  const std::string text = text_from(0);
  if (!text.starts_with(all_emitted_)) {
    throw Error(ErrorKind::kInternal, "the streamed text is no prefix of the decoded one");
  }
  return text.substr(all_emitted_.size());
}

}  // namespace haul
