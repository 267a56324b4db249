#include "tokenizers/post_processor.h"

#include <algorithm>

#include "haul/error.h"
#include "tokenizers/byte_level.h"
#include "tokenizers/unicode.h"
#include "tokenizers/utf8.h"

namespace haul::tokenizers {
namespace {

Encoding special_encoding(const std::vector<NamedId>& tokens, std::uint32_t type_id) {
  Encoding encoding;
  for (const NamedId& token : tokens) {
    encoding.ids.push_back(token.id);
    encoding.tokens.push_back(token.token);
    encoding.type_ids.push_back(type_id);
    encoding.offsets.emplace_back(0, 0);
    encoding.special_tokens_mask.push_back(1);
    encoding.attention_mask.push_back(1);
  }
  return encoding;
}

void set_types(Encoding& encoding, std::uint32_t type_id) {
  encoding.type_ids.assign(encoding.ids.size(), type_id);
}

// Puts tokens around an encoding and around each part that overflows.
Encoding surround(const Encoding& before, Encoding encoding, const Encoding& after) {
  const auto wrap = [&](Encoding inner) {
    inner.special_tokens_mask.assign(inner.ids.size(), 0);
    inner.attention_mask.assign(inner.ids.size(), 1);
    inner.overflowing.clear();
    return join({before, std::move(inner), after});
  };
  std::vector<Encoding> overflowing = std::move(encoding.overflowing);
  Encoding result = wrap(std::move(encoding));
  for (Encoding& part : overflowing) result.overflowing.push_back(wrap(std::move(part)));
  return result;
}

// Leaves the spaces of byte-level tokens out of their offsets.
void trim_offsets(Encoding& encoding, bool add_prefix_space) {
  const char32_t space = byte_to_point()[' '];
  const auto is_blank = [space](char32_t c) { return c == space || is_space(c); };
  for (std::size_t i = 0; i < encoding.tokens.size(); ++i) {
    const std::string& token = encoding.tokens[i];
    std::size_t leading = 0;
    std::size_t at = 0;
    while (at < token.size() && is_blank(utf8_point(&token[at]))) {
      at += utf8_size(token[at]);
      ++leading;
    }
    std::size_t trailing = 0;
    for (const char* end = token.data() + token.size(); end > token.data();) {
      end = utf8_previous(end);
      if (!is_blank(utf8_point(end))) break;
      ++trailing;
    }
    auto& [begin, end] = encoding.offsets[i];
    if (leading > 0) {
      const bool is_first = i == 0 || begin == 0;
      if (is_first && add_prefix_space && leading == 1) leading = 0;
      begin = std::min(begin + leading, end);
    }
    if (trailing > 0 && end >= trailing) end = std::max(end - trailing, begin);
  }
}

void trim_all_offsets(std::vector<Encoding>& encodings, bool add_prefix_space) {
  for (Encoding& encoding : encodings) {
    trim_offsets(encoding, add_prefix_space);
    for (Encoding& part : encoding.overflowing) trim_offsets(part, add_prefix_space);
  }
}

class Bert final : public PostProcessor {
 public:
  Bert(NamedId sep, NamedId cls) : sep_(std::move(sep)), cls_(std::move(cls)) {}

  std::size_t added(bool is_pair) const override { return is_pair ? 3 : 2; }
  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool add_special_tokens) const override {
    if (!add_special_tokens) return encodings;
    for (std::size_t i = 0; i < encodings.size(); ++i) {
      const auto type = static_cast<std::uint32_t>(i == 0 ? 0 : 1);
      const Encoding before = i == 0 ? special_encoding({cls_}, 0) : Encoding{};
      encodings[i] = surround(before, std::move(encodings[i]), special_encoding({sep_}, type));
    }
    return encodings;
  }

 private:
  NamedId sep_, cls_;
};

class Roberta final : public PostProcessor {
 public:
  Roberta(NamedId sep, NamedId cls, bool trims, bool add_prefix_space)
      : sep_(std::move(sep)),
        cls_(std::move(cls)),
        trims_(trims),
        add_prefix_space_(add_prefix_space) {}

  std::size_t added(bool is_pair) const override { return is_pair ? 4 : 2; }
  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool add_special_tokens) const override {
    if (trims_) trim_all_offsets(encodings, add_prefix_space_);
    for (Encoding& encoding : encodings) set_types(encoding, 0);
    if (!add_special_tokens) return encodings;
    for (std::size_t i = 0; i < encodings.size(); ++i) {
      for (Encoding& part : encodings[i].overflowing) set_types(part, 0);
      encodings[i] = surround(special_encoding({i == 0 ? cls_ : sep_}, 0), std::move(encodings[i]),
                              special_encoding({sep_}, 0));
    }
    return encodings;
  }

 private:
  NamedId sep_, cls_;
  bool trims_, add_prefix_space_;
};

class ByteLevel final : public PostProcessor {
 public:
  ByteLevel(bool trims, bool add_prefix_space)
      : trims_(trims), add_prefix_space_(add_prefix_space) {}

  std::size_t added(bool) const override { return 0; }
  std::vector<Encoding> process(std::vector<Encoding> encodings, bool) const override {
    if (trims_) trim_all_offsets(encodings, add_prefix_space_);
    return encodings;
  }

 private:
  bool trims_, add_prefix_space_;
};

class Template final : public PostProcessor {
 public:
  Template(std::vector<TemplatePiece> single, std::vector<TemplatePiece> pair)
      : single_(std::move(single)), pair_(std::move(pair)) {}

  std::size_t added(bool is_pair) const override {
    std::size_t count = 0;
    for (const TemplatePiece& piece : is_pair ? pair_ : single_) count += piece.special.size();
    return count;
  }
  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool add_special_tokens) const override {
    if (encodings.empty() || encodings.size() > 2) {
      throw Error(ErrorKind::kUnsupported,
                  "a template applies to one or two sequences; another processor made more");
    }
    std::vector<Encoding> result;
    for (const TemplatePiece& piece : encodings.size() == 2 ? pair_ : single_) {
      if (piece.kind == TemplatePiece::Kind::kSpecial) {
        if (add_special_tokens) result.push_back(special_encoding(piece.special, piece.type_id));
        continue;
      }
      const std::size_t index = piece.kind == TemplatePiece::Kind::kFirst ? 0 : 1;
      if (index >= encodings.size()) {
        throw Error(ErrorKind::kUnsupported, "the template for one sequence names a second one");
      }
      set_types(encodings[index], piece.type_id);
      result.push_back(encodings[index]);
    }
    return result;
  }

 private:
  std::vector<TemplatePiece> single_, pair_;
};

class Sequence final : public PostProcessor {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PostProcessor>> parts) : parts_(std::move(parts)) {}

  std::size_t added(bool is_pair) const override {
    std::size_t count = 0;
    for (const auto& part : parts_) count += part->added(is_pair);
    return count;
  }
  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool add_special_tokens) const override {
    for (const auto& part : parts_) {
      encodings = part->process(std::move(encodings), add_special_tokens);
    }
    return encodings;
  }

 private:
  std::vector<std::unique_ptr<PostProcessor>> parts_;
};

}  // namespace

std::unique_ptr<PostProcessor> make_bert_processor(NamedId sep, NamedId cls) {
  return std::make_unique<Bert>(std::move(sep), std::move(cls));
}
std::unique_ptr<PostProcessor> make_roberta_processor(NamedId sep, NamedId cls, bool trims,
                                                      bool add_prefix_space) {
  return std::make_unique<Roberta>(std::move(sep), std::move(cls), trims, add_prefix_space);
}
std::unique_ptr<PostProcessor> make_byte_level_processor(bool trims, bool add_prefix_space) {
  return std::make_unique<ByteLevel>(trims, add_prefix_space);
}
std::unique_ptr<PostProcessor> make_template_processor(std::vector<TemplatePiece> single,
                                                       std::vector<TemplatePiece> pair) {
  return std::make_unique<Template>(std::move(single), std::move(pair));
}
std::unique_ptr<PostProcessor> make_post_processor_sequence(
    std::vector<std::unique_ptr<PostProcessor>> parts) {
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace haul::tokenizers
