// What a hub may send: listings, header lines, addresses, file names. The first byte chooses.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/hub/answers.h"
#include "core/hub/name.h"
#include "core/hub/url.h"
#include "haul/error.h"

namespace {

using namespace haul::core;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_name(std::string_view name) {
  if (!is_safe_file_name(name)) return;
  const std::filesystem::path inside = (std::filesystem::path("/root") / name).lexically_normal();
  require(inside.string().starts_with("/root/") && inside.string().size() > 6);
  require(name.find('\0') == name.npos);
}

void read_listing(std::string_view text) {
  const ModelInfo info = parse_model_info(text, "fuzz");
  require(is_commit(info.commit));
  for (const HubFile& file : info.files) {
    check_name(file.name);
    require(is_safe_file_name(file.name));
    require(file.etag.empty() || is_commit(file.etag) || is_sha256(file.etag));
  }
}

void read_headers(std::string_view text) {
  HttpAnswer answer;
  answer.status = text.empty() ? 0 : 200 + static_cast<unsigned char>(text.front()) * 2;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    if (!take_header_line(text.substr(0, end), &answer)) break;
    text.remove_prefix(end);
  }
  retry_after(answer);
  is_passing(answer);
  length_header(answer, "content-length");
  if (const std::string* etag = answer.header("etag")) {
    if (const auto name = normalised_etag(*etag)) {
      check_name(*name);
      require(is_safe_file_name(*name) && name->find('/') == name->npos);
    }
  }
  if (const std::string* range = answer.header("content-range")) {
    if (const auto parsed = parse_content_range(*range)) require(parsed->first <= parsed->last);
  }
  throw_answer(answer, {"https://hub", "org/name", "main", "file", true});
}

void read_address(std::string_view text) {
  const Url from = parse_url("https://hub.example/org/name");
  const Url to = redirect_target(from, text);
  require(to.scheme == "https" && !to.host.empty() && to.target.starts_with("/"));
  const Url again = parse_url(to.text());
  require(again.host == to.host && again.port == to.port && again.target == to.target);
}

void read_name(std::string_view text) {
  check_name(text);
  printable(text);
  url_encoded(text, true);
  if (const auto name = parse_hub_name(text)) {
    require(cache_folder_name(name->repository).find('/') == std::string::npos);
    require(name->revision.empty() || is_safe_file_name(name->revision));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0:
        read_listing(text);
        break;
      case 1:
        read_headers(text);
        break;
      case 2:
        read_address(text);
        break;
      default:
        read_name(text);
        break;
    }
  } catch (const haul::Error&) {
  }
  return 0;
}
