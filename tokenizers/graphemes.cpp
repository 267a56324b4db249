#include "tokenizers/graphemes.h"

#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

using Break = GraphemeBreak;

// What a cluster remembers of the characters before a possible break.
struct State {
  Break last = Break::kOther;
  bool odd_regional = false;      // an odd number of regional indicators so far
  bool pictograph = false;        // a pictograph and then only extending characters
  bool pictograph_zwj = false;    // … and then a joiner, the last character
  bool consonant = false;         // a consonant and then only linkers and joiners
  bool consonant_linker = false;  // … with a linker among them

  void take(Break kind, int extra) {
    odd_regional = kind == Break::kRegional && !(last == Break::kRegional && odd_regional);
    pictograph_zwj = pictograph && kind == Break::kZwj;
    if (extra == kPictograph) {
      pictograph = true;
    } else if (kind != Break::kExtend) {
      pictograph = false;
    }
    if (extra == kConsonant) {
      consonant = true;
      consonant_linker = false;
    } else if (consonant && extra == kLinker) {
      consonant_linker = true;
    } else if (extra != kJoiner && kind != Break::kZwj) {
      consonant = consonant_linker = false;
    }
    last = kind;
  }

  bool breaks_before(Break kind, int extra) const {
    const auto is_control = [](Break b) {
      return b == Break::kControl || b == Break::kCr || b == Break::kLf;
    };
    if (last == Break::kCr && kind == Break::kLf) return false;
    if (is_control(last) || is_control(kind)) return true;
    if (last == Break::kL &&
        (kind == Break::kL || kind == Break::kV || kind == Break::kLv || kind == Break::kLvt)) {
      return false;
    }
    if ((last == Break::kLv || last == Break::kV) && (kind == Break::kV || kind == Break::kT)) {
      return false;
    }
    if ((last == Break::kLvt || last == Break::kT) && kind == Break::kT) return false;
    if (kind == Break::kExtend || kind == Break::kZwj || kind == Break::kSpacing) return false;
    if (last == Break::kPrepend) return false;
    if (consonant_linker && extra == kConsonant) return false;
    if (pictograph_zwj && extra == kPictograph) return false;
    return !(odd_regional && kind == Break::kRegional);
  }
};

}  // namespace

std::size_t grapheme_size(std::string_view text) {
  const Unicode& properties = unicode();
  State state;
  std::size_t i = 0;
  while (i < text.size()) {
    const std::uint8_t value = properties.breaks[utf8_point(&text[i])];
    const auto kind = static_cast<Break>(value & 15);
    const int extra = value >> 4;
    if (i > 0 && state.breaks_before(kind, extra)) break;
    state.take(kind, extra);
    i += utf8_size(text[i]);
  }
  return i;
}

}  // namespace haul::tokenizers
