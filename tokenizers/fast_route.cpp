#include "tokenizers/fast_route.h"

#include <algorithm>
#include <array>
#include <utility>

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

// The pieces of a word that follows another one, with a line after each.
std::string split_word(const Pipeline& pipeline, std::string_view word) {
  Pieces pieces;
  pieces.text.assign(word, 1, true);
  if (pipeline.later_normalizer != nullptr) pipeline.later_normalizer->normalize(pieces.text);
  if (!pieces.text.empty()) pieces.list.push_back({0, pieces.text.size(), kNoToken, false});
  if (pipeline.pre_tokenizer != nullptr) pipeline.pre_tokenizer->split(pieces);
  std::string result;
  for (const Piece& piece : pieces.list) result.append(pieces.bytes(piece)).append("\n");
  return result;
}

// Whether words can be split on their own: one that follows blanks begins where the word before it
// ends, in a piece or, when nothing splits them, with a mark.
bool parts_at_blanks(const Pipeline& pipeline, bool splits) {
  const std::string first = split_word(pipeline, "a");
  for (const char* word : {" a", "  a", "   a"}) {
    const std::string second = split_word(pipeline, word);
    std::string both = split_word(pipeline, std::string("a") + word);
    std::string apart = first + second;
    if (!splits) {
      if (!second.starts_with(kMark)) return false;
      std::erase(both, '\n');
      std::erase(apart, '\n');
    }
    if (both != apart) return false;
  }
  return true;
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
  const bool splits = is_word_splitter(steps);
  if ((splits || is_unsplit_bpe(pipeline, steps)) && parts_at_blanks(pipeline, splits)) {
    route.cut_ = Cut::kBlanks;
    route.find_blanks(steps);
    return route;
  }
  return std::nullopt;
}

void FastRoute::find_blanks(const std::vector<SplitStep>& steps) {
  const Normalizer* normalizer = pipeline_->later_normalizer.get();
  for (char c = '!'; c < 0x7F; ++c) {
    if (normalizer == nullptr || normalizer->keeps_apart(static_cast<char32_t>(c))) {
      bytes_[static_cast<unsigned char>(c)] = Byte::kPlain;
    }
  }
  bytes_[' '] = Byte::kBlank;
  if (normalizer == nullptr) return;
  for (const char c : {'\n', '\t'}) {
    Text probe;
    probe.assign(std::string{'a', c, 'b'}, 0, false);
    normalizer->normalize(probe);
    if (probe.bytes() == "a b") bytes_[static_cast<unsigned char>(c)] = Byte::kBlank;
  }
  const bool drops_blanks = !steps.empty() && steps[0].kind == Kind::kWhitespaceSplit;
  joins_blanks_ = (drops_blanks ? normalizer->keeps_spaces() : normalizer->joins_spaces()) &&
                  split_word(*pipeline_, " a") == split_word(*pipeline_, "   a");
  if (joins_blanks_ && split_word(*pipeline_, " a") == std::string(kMark) + "a\n") mark_ = kMark;
}

void FastRoute::encode(std::string_view text, FastScratch& scratch,
                       std::vector<TokenId>& result) const {
  if (scratch.words == nullptr || scratch.words->is_full()) scratch.words = cache_->table();
  IdBuffer& ids = scratch.ids;
  ids.clear();
  scratch.waiting_count = 0;
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
      if (cut_ == Cut::kScanner) scan_segment(piece, scratch);
      if (cut_ == Cut::kBertWords) cut_bert_words(piece, scratch);
      if (cut_ == Cut::kBlanks) cut_at_blanks(piece, at_start, scratch);
      put_waiting(scratch);
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
  result.insert(result.end(), ids.begin(), ids.end());
}

void FastRoute::scan_segment(std::string_view text, FastScratch& scratch) const {
  if (add_prefix_space_ && text[0] != ' ') {
    scratch.copy.assign(" ").append(text);
    text = scratch.copy;
  }
  const char* const limit = text.data() + text.size();
  scan(scanner_, text, [&](const char* begin, const char* end) {
    put_word({begin, static_cast<std::size_t>(end - begin)}, 0, limit, scratch);
  });
}

void FastRoute::cut_bert_words(std::string_view text, FastScratch& scratch) const {
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
    put_word({begin, static_cast<std::size_t>(p - begin)}, 0, end, scratch);
  }
}

void FastRoute::cut_at_blanks(std::string_view text, bool at_start, FastScratch& scratch) const {
  const char* const end = text.data() + text.size();
  const char* begin = text.data();
  std::uint32_t tag = at_start ? kFirst | kAtStart : kFirst;
  const auto is = [&](const char* p, Byte kind) {
    return bytes_[static_cast<unsigned char>(*p)] == kind;
  };
  for (const char* p = begin; p < end;) {
    while (p < end && !is(p, Byte::kBlank)) ++p;
    const char* const blank = p;
    while (p < end && is(p, Byte::kBlank)) ++p;
    if (p == end || blank == text.data()) continue;
    if (!(is(blank - 1, Byte::kPlain) || is_ordinary(utf8_previous(blank))) ||
        !(is(p, Byte::kPlain) || is_ordinary(p))) {
      continue;
    }
    put_word({begin, static_cast<std::size_t>(blank - begin)}, tag, end, scratch);
    begin = joins_blanks_ ? p - 1 : blank;
    tag = 0;
  }
  put_word({begin, static_cast<std::size_t>(end - begin)}, tag, end, scratch);
}

bool FastRoute::is_ordinary(const char* at) const {
  const char32_t point = utf8_point(at);
  if (point < 0x80) return bytes_[point] == Byte::kPlain;
  const Unicode& properties = unicode();
  if ((properties.scan[point] & (kScanLetter | kScanNumber)) == 0) return false;
  const auto kind = static_cast<GraphemeBreak>(properties.breaks[point] & 15);
  return (properties.flags[point] & (kNotNfkc | kIsSpace | kIsUnclean)) == 0 &&
         kind != GraphemeBreak::kExtend && kind != GraphemeBreak::kSpacing &&
         kind != GraphemeBreak::kPrepend && kind != GraphemeBreak::kZwj &&
         (pipeline_->later_normalizer == nullptr ||
          pipeline_->later_normalizer->keeps_apart(point));
}

inline void FastRoute::put_word(std::string_view word, std::uint32_t tag, const char* limit,
                                FastScratch& scratch) const {
  WordTable::Query& query = scratch.waiting[scratch.waiting_count];
  WordTable::make_query(word, tag, limit, query);
  scratch.words->prefetch(query);
  if (++scratch.waiting_count == scratch.waiting.size()) put_waiting(scratch);
}

void FastRoute::put_waiting(FastScratch& scratch) const {
  const std::size_t count = std::exchange(scratch.waiting_count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const WordTable::Query& query = scratch.waiting[i];
    if (!scratch.words->append(query, scratch.ids)) put_unknown_word(query, scratch);
  }
}

void FastRoute::put_unknown_word(const WordTable::Query& query, FastScratch& scratch) const {
  compute_word(query.word, query.tag, scratch);
  const std::vector<TokenId>& ids = scratch.word_ids;
  scratch.ids.append(ids.data(), ids.size());
  if (scratch.words->is_full()) scratch.words = cache_->replace(*scratch.words);
  scratch.words->put(query, ids.data(), ids.size());
}

bool FastRoute::is_plain_word(std::string_view word) const {
  const std::string_view body = word.substr(1);
  return !body.empty() && std::all_of(body.begin(), body.end(), [this](char c) {
    return bytes_[static_cast<unsigned char>(c)] == Byte::kPlain;
  }) && pipeline_->later_normalizer->keeps(body);
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
  if (tag == 0 && !mark_.empty() && is_plain_word(word)) {
    scratch.mapped.assign(mark_).append(word.substr(1));
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
