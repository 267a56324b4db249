#include <istream>
#include <set>
#include <streambuf>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "core/base/quote.h"
#include "core/base/utf8.h"
#include "core/launch/config_value.h"
#include "haul/bytes.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr Bytes kMaxText = 256 * kKiB;
constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxValues = 10'000;
constexpr std::size_t kMaxKey = 128;  // YAML allows 1024 characters, each of which may be an escape

[[noreturn]] void refuse(std::string_view source, int line, const std::string& why) {
  throw Error(ErrorKind::kCorrupt, fmt::format("{}: line {}: {}", source, line, why));
}

// The parser turns the escapes \N and \_ into single bytes; all else that it gives is UTF-8.
std::string repaired(const std::string& text) {
  if (is_utf8(text)) return text;
  std::string result;
  int following = 0;  // bytes of the character that has begun
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = byte >= 0x80 && byte < 0xc0;
    if (continues && following == 0) result += '\xc2';
    if (continues && following > 0) --following;
    if (byte >= 0xc0) following = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    result += c;
  }
  return result;
}

// Builds the tree from the parser's events and ends it at the first thing that a config may not
// hold, before the parser goes deeper.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view source) : source_(source) {}

  ConfigValue root;

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add_scalar(mark, anchor, "null", true);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    refuse(source_, line(mark), "aliases are not allowed here");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (tag != "?" && tag != "!") refuse_tag(mark, tag);
    add_scalar(mark, anchor, repaired(value), tag == "?");
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, ConfigValue::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, ConfigValue::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or map whose end has not come.
  struct Open {
    ConfigValue value;
    std::string key;
    bool has_key = false;
    std::set<std::string> keys;
  };

  static int line(const YAML::Mark& mark) { return mark.line + 1; }

  [[noreturn]] void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    refuse(source_, line(mark), fmt::format("the tag {} is not allowed here", quote(tag)));
  }

  void check(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse(source_, line(mark), "anchors are not allowed here");
    if (++values_ > kMaxValues) {
      refuse(source_, line(mark), fmt::format("more than {} values", kMaxValues));
    }
  }

  void add_scalar(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& text,
                  bool plain) {
    check(mark, anchor);
    if (!open_.empty() && open_.back().value.kind == ConfigValue::Kind::kMap &&
        !open_.back().has_key) {
      Open& map = open_.back();
      if (text.size() > kMaxKey) {
        refuse(source_, line(mark), fmt::format("a key of more than {} bytes", kMaxKey));
      }
      if (!map.keys.insert(text).second) {
        refuse(source_, line(mark), fmt::format("the key {} is given twice", quote(text)));
      }
      map.key = text;
      map.has_key = true;
      return;
    }
    ConfigValue value;
    value.text = text;
    value.plain = plain;
    value.line = line(mark);
    add(std::move(value));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            ConfigValue::Kind kind) {
    check(mark, anchor);
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    if (open_.size() >= kMaxDepth) {
      refuse(source_, line(mark), fmt::format("nested deeper than {}", kMaxDepth));
    }
    if (!open_.empty() && open_.back().value.kind == ConfigValue::Kind::kMap &&
        !open_.back().has_key) {
      refuse(source_, line(mark), "a key must be a text");
    }
    Open next;
    next.value.kind = kind;
    next.value.line = line(mark);
    open_.push_back(std::move(next));
  }

  void close() {
    ConfigValue value = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(value));
  }

  void add(ConfigValue value) {
    if (open_.empty()) {
      root = std::move(value);
    } else {
      Open& outer = open_.back();
      value.key = std::exchange(outer.key, {});
      outer.has_key = false;
      outer.value.items.push_back(std::move(value));
    }
  }

  std::string_view source_;
  std::vector<Open> open_;
  std::size_t values_ = 0;
};

// Reads from a text without a copy of it.
class TextBuffer : public std::streambuf {
 public:
  explicit TextBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
};

}  // namespace

ConfigValue parse_yaml(std::string_view text, std::string_view source) {
  if (text.size() > kMaxText) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: {} is too long for a config (limit {})", source,
                            format_bytes(text.size()), format_bytes(kMaxText)));
  }
  if (!is_utf8(text) || text.find('\0') != text.npos) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: not UTF-8 text", source));
  }
  TextBuffer buffer(text);
  std::istream stream(&buffer);
  Builder builder(source);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return builder.root;
    Builder second(source);
    if (parser.HandleNextDocument(second)) {
      refuse(source, second.root.line, "a second document begins");
    }
  } catch (const YAML::Exception& error) {
    refuse(source, error.mark.line + 1, "not valid YAML: " + error.msg);
  }
  return builder.root;
}

}  // namespace haul::core
