#include "core/base/json.h"

#include <string>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "core/base/file.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr int kMaxDepth = 256;
constexpr std::size_t kMaxKeys = 100'000;
constexpr Bytes kMaxFile = 64 * kMiB;

// Checks a document's shape in one pass without building it, so that the build below meets no
// surprise: nlohmann keeps the last of two equal keys and looks keys up one by one.
class ShapeCheck : public nlohmann::json_sax<Json> {
 public:
  explicit ShapeCheck(std::string_view source) : source_(source) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool key(string_t& text) override {
    if (!keys_.back().insert(text).second) {
      refuse(fmt::format("the key '{}' is given twice", text));
    }
    if (keys_.back().size() > kMaxKeys) {
      refuse(fmt::format("an object has more than {} keys", kMaxKeys));
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception&) override {
    refuse(fmt::format("not valid JSON at byte {}, near '{}'", position, last_token.substr(0, 40)));
  }

 private:
  bool enter() {
    keys_.emplace_back();
    if (keys_.size() > kMaxDepth) refuse(fmt::format("nested deeper than {}", kMaxDepth));
    return true;
  }

  bool leave() {
    keys_.pop_back();
    return true;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", source_, why));
  }

  std::string_view source_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source) {
  ShapeCheck check(source);
  Json::sax_parse(text, &check);
  return Json::parse(text);
}

Json read_json(const std::filesystem::path& path) {
  return parse_json(read_file(path, kMaxFile), path.string());
}

}  // namespace haul::core
