#include "tokenizers/fast_route.h"

#include <algorithm>
#include <array>

#include "tokenizers/byte_level.h"
#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

using Kind = SplitStep::Kind;

// What a word's place adds to its key.
constexpr std::uint32_t kFirst = 1;    // of its segment
constexpr std::uint32_t kAtStart = 2;  // and of the text

std::vector<SplitStep> steps_of(const Pipeline& pipeline) {
  std::vector<SplitStep> steps;
  if (pipeline.pre_tokenizer != nullptr) pipeline.pre_tokenizer->describe(steps);
  return steps;
}

struct ByteLevelShape {
  Scanner scanner;
  bool add_prefix_space;
};

std::optional<ByteLevelShape> byte_level_shape(const std::vector<SplitStep>& steps) {
  if (steps.empty() || steps.back().kind != Kind::kByteLevel) return std::nullopt;
  const SplitStep& last = steps.back();
  if (steps.size() == 1 && last.use_regex)
    return ByteLevelShape{Scanner::kGpt2, last.add_prefix_space};
  if (steps.size() != 2 || last.add_prefix_space) return std::nullopt;
  const SplitStep& first = steps.front();
  if (first.kind == Kind::kDigits && first.individual && last.use_regex) {
    return ByteLevelShape{Scanner::kGpt2Digits, false};
  }
  if (first.kind != Kind::kPattern || !first.keeps_matches || last.use_regex) return std::nullopt;
  const auto scanner = find_scanner(first.text);
  // CLIP's pattern leaves spaces out, which are then pieces of their own unless dropped.
  if (!scanner || (*scanner == Scanner::kClip && !first.drops_rest)) return std::nullopt;
  return ByteLevelShape{*scanner, false};
}

bool is_word_splitter(const std::vector<SplitStep>& steps) {
  const auto is = [&](std::size_t i, Kind kind) { return steps[i].kind == kind; };
  if (steps.size() == 1) {
    return is(0, Kind::kWhitespaceSplit) || (is(0, Kind::kMetaspace) && steps[0].splits);
  }
  return steps.size() == 2 && is(0, Kind::kWhitespaceSplit) && is(1, Kind::kMetaspace) &&
         steps[1].splits;
}

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581

// Pipelines that split nothing, but whose merges never reach over a space.
bool is_unsplit_bpe(const Pipeline& pipeline, const std::vector<SplitStep>& steps) {
  const bool unsplit = steps.empty() || (steps.size() == 1 && steps[0].kind == Kind::kMetaspace &&
                                         steps[0].text == kMark);
  if (!unsplit) return false;
  // A space must have become the mark.
  if (steps.empty()) {
    if (pipeline.later_normalizer == nullptr) return false;
    Text probe;
    probe.assign(" a b", 0, false);
    pipeline.later_normalizer->normalize(probe);
    if (probe.bytes() != std::string(kMark) + "a" + std::string(kMark) + "b") return false;
  }
  return pipeline.model->splits_before(kMark);
}

enum AsciiClass : std::uint8_t { kOrdinary, kBlank, kMarkPoint };

// ASCII as Bert's stages see it. Control characters are ordinary: the plain route knows them.
const std::array<AsciiClass, 256>& ascii_classes() {
  static const std::array<AsciiClass, 256> table = [] {
    std::array<AsciiClass, 256> classes{};
    for (const char c : {' ', '\t', '\n', '\r'}) classes[static_cast<unsigned char>(c)] = kBlank;
    for (std::size_t c = 0; c < 128; ++c) {
      if (unicode().is(static_cast<char32_t>(c), kIsPunctuation)) classes[c] = kMarkPoint;
    }
    return classes;
  }();
  return table;
}

// A character that no normalizer joins with a space or turns into one.
bool is_ordinary(char32_t point, const Unicode& properties, const Normalizer* normalizer) {
  if (normalizer != nullptr && !normalizer->keeps_apart(point)) return false;
  if (point < 0x80) return point > ' ' && point < 0x7F;
  if ((properties.scan[point] & (kScanLetter | kScanNumber)) == 0) return false;
  const auto kind = static_cast<GraphemeBreak>(properties.breaks[point] & 15);
  return (properties.flags[point] & (kNotNfkc | kIsSpace | kIsUnclean)) == 0 &&
         kind != GraphemeBreak::kExtend && kind != GraphemeBreak::kSpacing &&
         kind != GraphemeBreak::kPrepend && kind != GraphemeBreak::kZwj;
}

}  // namespace

std::optional<FastRoute> FastRoute::find(const Pipeline& pipeline) {
  FastRoute route(pipeline);
  const std::vector<SplitStep> steps = steps_of(pipeline);
  if (const auto shape = byte_level_shape(steps)) {
    route.scanner_ = shape->scanner;
    route.add_prefix_space_ = shape->add_prefix_space;
    return route;
  }
  // Words are looked up before they are normalized, so that no token may hide in the result.
  const Normalizer* normalizer = pipeline.later_normalizer.get();
  if (normalizer != nullptr && pipeline.added.has_normalized()) return std::nullopt;
  const Reach reach = normalizer == nullptr ? Reach::kCharacter : normalizer->reach();
  if (steps.size() == 1 && steps[0].kind == Kind::kBert && reach == Reach::kCharacter &&
      !pipeline.prepends) {
    route.cut_ = Cut::kBertWords;
    return route;
  }
  if (reach == Reach::kText) return std::nullopt;
  if (is_word_splitter(steps) || is_unsplit_bpe(pipeline, steps)) {
    route.cut_ = Cut::kSpaces;
    return route;
  }
  return std::nullopt;
}

void FastRoute::encode(std::string_view text, FastScratch& scratch,
                       std::vector<TokenId>& ids) const {
  scratch.segments.clear();
  pipeline_->added.find_raw(text, scratch.segments);
  for (const Piece& segment : scratch.segments) {
    if (segment.token != kNoToken) {
      ids.push_back(segment.token);
      continue;
    }
    std::string_view part = text.substr(segment.begin, segment.end - segment.begin);
    if (cut_ == Cut::kScanner && pipeline_->normalizer != nullptr &&
        !pipeline_->normalizer->keeps(part)) {
      scratch.text.assign(part, 0, false);
      pipeline_->normalizer->normalize(scratch.text);
      part = scratch.text.bytes();
    }
    const auto put = [&](std::string_view piece, bool at_start) {
      if (cut_ == Cut::kScanner) return scan_segment(piece, scratch, ids);
      if (cut_ == Cut::kBertWords) return cut_bert_words(piece, scratch, ids);
      cut_at_spaces(piece, at_start, scratch, ids);
    };
    if (!pipeline_->added.has_normalized()) {
      if (!part.empty()) put(part, segment.at_start);
      continue;
    }
    scratch.found.clear();
    pipeline_->added.find_normalized(part, scratch.found);
    for (const Piece& piece : scratch.found) {
      if (piece.token != kNoToken) {
        ids.push_back(piece.token);
      } else {
        put(part.substr(piece.begin, piece.end - piece.begin), segment.at_start && piece.at_start);
      }
    }
  }
}

void FastRoute::scan_segment(std::string_view text, FastScratch& scratch,
                             std::vector<TokenId>& ids) const {
  if (add_prefix_space_ && text[0] != ' ') {
    scratch.copy.assign(" ").append(text);
    text = scratch.copy;
  }
  const char* const limit = text.data() + text.size();
  scan(scanner_, text, [&](const char* begin, const char* end) {
    put_word({begin, static_cast<std::size_t>(end - begin)}, 0, limit, scratch, ids);
  });
}

void FastRoute::cut_bert_words(std::string_view text, FastScratch& scratch,
                               std::vector<TokenId>& ids) const {
  const auto& classes = ascii_classes();
  const auto kind = [&](const char* p) { return classes[static_cast<unsigned char>(*p)]; };
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const char* const begin = p;
    if (kind(p) == kBlank) {
      ++p;
      continue;
    }
    if (kind(p) == kMarkPoint) {
      ++p;
    } else {
      while (p < end && kind(p) == kOrdinary) ++p;
    }
    put_word({begin, static_cast<std::size_t>(p - begin)}, 0, end, scratch, ids);
  }
}

void FastRoute::cut_at_spaces(std::string_view text, bool at_start, FastScratch& scratch,
                              std::vector<TokenId>& ids) const {
  const Unicode& properties = unicode();
  const char* const end = text.data() + text.size();
  const char* begin = text.data();
  std::uint32_t tag = at_start ? kFirst | kAtStart : kFirst;
  for (const char* p = begin; p < end;) {
    const auto* space =
        static_cast<const char*>(std::memchr(p, ' ', static_cast<std::size_t>(end - p)));
    if (space == nullptr) break;
    p = space;
    while (p < end && *p == ' ') ++p;
    if (p == end) break;
    const Normalizer* normalizer = pipeline_->later_normalizer.get();
    if (space == text.data() ||
        !is_ordinary(utf8_point(utf8_previous(space)), properties, normalizer) ||
        !is_ordinary(utf8_point(p), properties, normalizer)) {
      continue;
    }
    put_word({begin, static_cast<std::size_t>(space - begin)}, tag, end, scratch, ids);
    begin = space;
    tag = 0;
  }
  put_word({begin, static_cast<std::size_t>(end - begin)}, tag, end, scratch, ids);
}

inline void FastRoute::put_word(std::string_view word, std::uint32_t tag, const char* limit,
                                FastScratch& scratch, std::vector<TokenId>& ids) const {
  if (word.size() <= WordCache::kShortWord) {
    const WordCache::Key key = WordCache::key(word, tag, limit);
    WordCache::Entry& entry = scratch.cache.entry(key);
    if (WordCache::matches(entry, key)) {
      ids.insert(ids.end(), entry.ids, entry.ids + entry.count);
      return;
    }
    if (const auto known = scratch.cache.find_long(word, tag); known.data != nullptr) {
      ids.insert(ids.end(), known.data, known.data + known.count);
      return;
    }
    compute_word(word, tag, scratch);
    if (scratch.word_ids.size() <= WordCache::kInlineIds) {
      WordCache::store(entry, key, scratch.word_ids.data(), scratch.word_ids.size());
    } else {
      scratch.cache.put_long(word, tag, scratch.word_ids.data(), scratch.word_ids.size());
    }
  } else {
    if (word.size() <= WordCache::kLongWord) {
      if (const auto known = scratch.cache.find_long(word, tag); known.data != nullptr) {
        ids.insert(ids.end(), known.data, known.data + known.count);
        return;
      }
    }
    compute_word(word, tag, scratch);
    scratch.cache.put_long(word, tag, scratch.word_ids.data(), scratch.word_ids.size());
  }
  ids.insert(ids.end(), scratch.word_ids.begin(), scratch.word_ids.end());
}

// The plain route for one word, into scratch.word_ids.
void FastRoute::compute_word(std::string_view word, std::uint32_t tag, FastScratch& scratch) const {
  PlainScratch& plain = scratch.plain;
  scratch.word_ids.clear();
  const auto take = [&](std::string_view piece) {
    plain.tokens.clear();
    pipeline_->model->tokenize(piece, plain.tokens, plain.model);
    for (const Token& token : plain.tokens) scratch.word_ids.push_back(token.id);
  };
  if (cut_ == Cut::kScanner) {
    scratch.mapped.clear();
    append_byte_level(word, scratch.mapped);
    take(scratch.mapped);
    return;
  }
  const Normalizer* normalizer =
      (tag & kFirst) != 0 ? pipeline_->normalizer.get() : pipeline_->later_normalizer.get();
  const bool needs_start = pipeline_->pre_tokenizer != nullptr &&
                           pipeline_->pre_tokenizer->needs_start() && normalizer != nullptr &&
                           normalizer->may_move_start();
  // Offsets tell where the first character came from; a word further on is at no start.
  plain.pieces.text.assign(word, (tag & kAtStart) != 0 ? 0 : 1, needs_start);
  if (normalizer != nullptr) normalizer->normalize(plain.pieces.text);
  plain.pieces.list.clear();
  if (!plain.pieces.text.empty()) {
    plain.pieces.list.push_back({0, plain.pieces.text.size(), kNoToken, (tag & kAtStart) != 0});
  }
  if (pipeline_->pre_tokenizer != nullptr) pipeline_->pre_tokenizer->split(plain.pieces);
  for (const Piece& piece : plain.pieces.list) take(plain.pieces.bytes(piece));
}

}  // namespace haul::tokenizers
