#include "tokenizers/added_tokens.h"

#include <algorithm>

#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

bool is_word(const char* at) {
  return unicode().is(utf8_point(at), kIsWord);
}

}  // namespace

void AddedTokens::add(const std::vector<AddedToken>& tokens, const Vocabulary& vocabulary,
                      const Normalizer* normalizer) {
  const auto size = static_cast<std::uint32_t>(vocabulary.size());
  std::uint32_t next = size;
  for (const auto& [id, entry] : by_id_) next = std::max(next, id + 1);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto known = find(token.content);
    if (known && by_id_.at(*known).token == token) continue;
    std::uint32_t id = next;
    if (known) {
      id = *known;
    } else if (const auto in_vocabulary = vocabulary.find(token.content)) {
      id = *in_vocabulary;
    } else {
      ++next;
    }
    Entry entry{token, token.content};
    if (token.normalized && normalizer != nullptr) {
      Text text;
      text.assign(token.content, 0, false);
      normalizer->normalize(text);
      entry.text = text.bytes();
    }
    by_content_[token.content] = id;
    if (token.special) special_.insert(token.content);
    by_id_[id] = std::move(entry);
  }
  build(raw_, false);
  build(normalized_, true);
}

void AddedTokens::build(Finder& finder, bool normalized) {
  std::vector<std::pair<std::string_view, std::uint32_t>> keys;
  finder = Finder{};
  for (const auto& [id, entry] : by_id_) {
    if (entry.token.normalized != normalized || entry.text.empty()) continue;
    keys.emplace_back(entry.text, id);
    finder.starts[static_cast<unsigned char>(entry.text[0])] = true;
    finder.any = true;
  }
  if (std::count(finder.starts.begin(), finder.starts.end(), true) == 1) {
    finder.only_start = keys[0].first[0];
  }
  // Of tokens with the same text the one with the highest id stays.
  std::sort(keys.begin(), keys.end());
  finder.trie = ByteTrie(std::move(keys));
}

void AddedTokens::find_raw(std::string_view text, std::vector<Piece>& pieces) const {
  find(raw_, text, pieces);
}

void AddedTokens::find_normalized(std::string_view text, std::vector<Piece>& pieces) const {
  find(normalized_, text, pieces);
}

std::size_t AddedTokens::next_start(const Finder& finder, std::string_view text, std::size_t i) {
  if (!finder.any) return text.size();
  if (finder.only_start) return std::min(text.find(*finder.only_start, i), text.size());
  while (i < text.size() && !finder.starts[static_cast<unsigned char>(text[i])]) ++i;
  return i;
}

void AddedTokens::find(const Finder& finder, std::string_view text,
                       std::vector<Piece>& pieces) const {
  std::size_t covered = 0;
  const auto put = [&](std::size_t begin, std::size_t end, std::uint32_t token) {
    if (begin < end) pieces.push_back({begin, end, token, begin == 0});
  };
  for (std::size_t i = 0; (i = next_start(finder, text, i)) < text.size();) {
    // The longest token that begins here.
    std::uint32_t id = kNoToken;
    std::size_t end = i;
    std::uint32_t node = ByteTrie::root();
    for (std::size_t k = i; k < text.size(); ++k) {
      node = finder.trie.child(node, static_cast<unsigned char>(text[k]));
      if (node == ByteTrie::kNone) break;
      if (finder.trie.value(node) == ByteTrie::kNone) continue;
      id = finder.trie.value(node);
      end = k + 1;
    }
    if (id == kNoToken) {
      ++i;
      continue;
    }
    std::size_t begin = std::exchange(i, end);
    const AddedToken& token = by_id_.at(id).token;
    if (token.single_word && ((begin > 0 && is_word(utf8_previous(text.data() + begin))) ||
                              (end < text.size() && is_word(text.data() + end)))) {
      continue;
    }
    if (token.lstrip) {
      while (begin > covered) {
        const char* previous = utf8_previous(text.data() + begin);
        if (!is_space(utf8_point(previous))) break;
        begin = static_cast<std::size_t>(previous - text.data());
      }
      begin = std::max(begin, covered);
    }
    if (token.rstrip) {
      while (end < text.size() && is_space(utf8_point(&text[end]))) end += utf8_size(text[end]);
    }
    put(covered, begin, kNoToken);
    put(begin, end, id);
    covered = end;
  }
  put(covered, text.size(), kNoToken);
}

std::optional<std::uint32_t> AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  if (found == by_content_.end()) return std::nullopt;
  return found->second;
}

const std::string* AddedTokens::text(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second.text;
}

std::size_t AddedTokens::new_count(const Vocabulary& vocabulary) const {
  return static_cast<std::size_t>(
      std::count_if(by_content_.begin(), by_content_.end(),
                    [&](const auto& entry) { return !vocabulary.find(entry.first); }));
}

}  // namespace haul::tokenizers
