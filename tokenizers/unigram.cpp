#include <algorithm>
#include <cmath>
#include <limits>

#include "haul/error.h"
#include "tokenizers/byte_trie.h"
#include "tokenizers/model.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

using Node = ModelScratch::Node;

constexpr double kUnknownPenalty = 10.0;

class Unigram final : public Model {
 public:
  Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options)
      : Model(std::move(vocabulary)), scores_(std::move(scores)), options_(options) {
    double lowest = std::numeric_limits<double>::infinity();
    for (const double score : scores_) {
      if (score < lowest) lowest = score;
    }
    unknown_score_ = add(options_.lowest_score.value_or(lowest), -kUnknownPenalty);
    std::vector<std::pair<std::string_view, std::uint32_t>> keys;
    for (std::size_t i = 0; i < this->vocabulary().size(); ++i) {
      const std::uint32_t id = this->vocabulary().id(i);
      const std::string_view text = this->vocabulary().text(i);
      if (id < scores_.size() && !std::isnan(scores_[id]) && !text.empty()) {
        keys.emplace_back(text, id);
      }
    }
    trie_ = ByteTrie(std::move(keys));
    if (options_.byte_fallback) bytes_ = byte_tokens(this->vocabulary());
  }

  void tokenize(std::string_view piece, std::vector<Token>& tokens,
                ModelScratch& scratch) const override {
    std::vector<Node>& nodes = scratch.nodes;  // the best way to end at each byte
    nodes.assign(piece.size() + 1, Node{});
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t size = utf8_size(piece[begin]);
      const double until_here = nodes[begin].score;
      bool has_single = false;
      const auto offer = [&](std::size_t end, double score, std::uint32_t id) {
        Node& node = nodes[end];
        if (node.reached && !(score > node.score)) return;
        node = {score, static_cast<std::uint32_t>(begin), id, true};
      };
      std::uint32_t at = ByteTrie::root();
      for (std::size_t i = begin; i < piece.size(); ++i) {
        at = trie_.child(at, static_cast<unsigned char>(piece[i]));
        if (at == ByteTrie::kNone) break;
        const std::uint32_t id = trie_.value(at);
        if (id == ByteTrie::kNone) continue;
        offer(i + 1, add(scores_[id], until_here), id);
        if (i + 1 == begin + size) has_single = true;
      }
      if (!has_single) {
        const double score = add(unknown_score_, until_here);
        if (options_.unk_id) {
          offer(begin + size, score, *options_.unk_id);
        } else if (!nodes[begin + size].reached || score > nodes[begin + size].score) {
          refuse();
        }
      }
      begin += size;
    }
    collect(piece, tokens, nodes);
  }

  bool splits_before(std::string_view) const override { return false; }

 private:
  double add(double a, double b) const {
    return options_.single_precision
               ? static_cast<double>(static_cast<float>(a) + static_cast<float>(b))
               : a + b;
  }

  [[noreturn]] static void refuse() {
    throw Error(
        ErrorKind::kUnsupported,
        "the text has a character that the vocabulary lacks, and there is no unknown token");
  }

  // From the back, with neighbouring unknown parts as one.
  void collect(std::string_view piece, std::vector<Token>& tokens,
               const std::vector<Node>& nodes) const {
    const std::size_t first = tokens.size();
    std::size_t end = piece.size();
    while (end > 0) {
      const Node& node = nodes[end];
      std::size_t begin = node.begin;
      if (options_.unk_id && node.id == *options_.unk_id) {
        while (begin > 0 && nodes[begin].id == *options_.unk_id) begin = nodes[begin].begin;
        put_unknown(piece, begin, end, tokens);
      } else {
        tokens.push_back(
            {node.id, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), false});
      }
      end = begin;
    }
    std::reverse(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
  }

  void put_unknown(std::string_view piece, std::size_t begin, std::size_t end,
                   std::vector<Token>& tokens) const {
    const std::string_view text = piece.substr(begin, end - begin);
    const auto from = static_cast<std::uint32_t>(begin);
    const auto to = static_cast<std::uint32_t>(end);
    // The joined text may be an entry after all.
    if (const auto id = vocabulary().find(text)) {
      tokens.push_back({*id, from, to, false});
      return;
    }
    const auto byte_id = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    if (options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char byte) {
          return byte_id(byte) != kNoByte;
        })) {
      for (auto byte = text.rbegin(); byte != text.rend(); ++byte) {
        tokens.push_back({byte_id(*byte), from, to, false});
      }
      return;
    }
    tokens.push_back({*options_.unk_id, from, to, true});
  }

  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_ = 0;
  ByteTrie trie_;
  std::vector<std::uint32_t> bytes_;
};

}  // namespace

std::unique_ptr<Model> make_unigram(Vocabulary vocabulary, std::vector<double> scores,
                                    UnigramOptions options) {
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), options);
}

}  // namespace haul::tokenizers
