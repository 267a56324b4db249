#include "core/hub/answers.h"

#include <charconv>
#include <unordered_set>

#include <fmt/format.h>

#include "core/base/big_json.h"
#include "core/hub/name.h"
#include "haul/error.h"

namespace haul::core {
namespace {

std::optional<Bytes> number(std::string_view text) {
  Bytes value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc{} || stop != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::string_view text_at(simdjson::dom::object object, std::string_view key) {
  std::string_view text;
  return object[key].get(text) ? std::string_view() : text;
}

std::optional<Bytes> size_at(simdjson::dom::object object) {
  std::uint64_t size = 0;
  if (object["size"].get(size)) return std::nullopt;
  return size;
}

HubFile read_file_entry(simdjson::dom::object entry, std::string_view source) {
  HubFile file;
  file.name = text_at(entry, "rfilename");
  check_file_name(file.name, source);
  simdjson::dom::object lfs;
  if (!entry["lfs"].get(lfs)) {
    if (const std::string_view sha = text_at(lfs, "sha256"); is_sha256(sha)) file.etag = sha;
    file.size = size_at(lfs);
  } else {
    if (const std::string_view sha = text_at(entry, "blobId"); is_commit(sha)) file.etag = sha;
    file.size = size_at(entry);
  }
  return file;
}

std::string no_access_hint(const Asked& asked) {
  if (asked.with_token)
    return "check the name; a private model also needs a token with access to it";
  return "check the name; for a private model set HF_TOKEN to a token with access to it";
}

[[noreturn]] void throw_failure(const HttpAnswer& answer, const Asked& asked,
                                const std::string& subject) {
  const std::string why = printable(answer.reason);
  switch (answer.failure) {
    case HttpFailure::kResolve:
    case HttpFailure::kConnect:
      throw Error(ErrorKind::kResource,
                  fmt::format("{}: cannot reach {}: {}", subject, asked.endpoint, why),
                  "check the network and the proxy; with HF_HUB_OFFLINE=1 haul uses what it has");
    case HttpFailure::kTimeout:
      throw Error(ErrorKind::kResource,
                  fmt::format("{}: {} does not answer in time: {}", subject, asked.endpoint, why),
                  "try again; HF_HUB_DOWNLOAD_TIMEOUT sets the seconds to wait");
    case HttpFailure::kCertificate:
      throw Error(
          ErrorKind::kResource,
          fmt::format("{}: the certificate of {} is not valid: {}", subject, asked.endpoint, why),
          "SSL_CERT_FILE may name your own certificate authorities");
    default:
      throw Error(
          ErrorKind::kResource,
          fmt::format("{}: the connection to {} broke off: {}", subject, asked.endpoint, why),
          "run the same command again: it goes on where it stopped");
  }
}

}  // namespace

const HubFile* ModelInfo::find(std::string_view name) const {
  for (const HubFile& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

ModelInfo parse_model_info(std::string_view text, std::string_view source) {
  const BigJson document(text, source);
  simdjson::dom::object root;
  simdjson::dom::array siblings;
  ModelInfo info;
  if (!document.root().get(root)) info.commit = text_at(root, "sha");
  if (!is_commit(info.commit) || root["siblings"].get(siblings)) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: not a model's listing: no commit or no files in it", source),
                "if HF_ENDPOINT is set, check that it names a hub");
  }
  info.library = printable(text_at(root, "library_name"));
  for (const simdjson::dom::element element : siblings) {
    simdjson::dom::object entry;
    if (element.get(entry)) {
      throw Error(ErrorKind::kCorrupt, fmt::format("{}: an entry is no file", source));
    }
    info.files.push_back(read_file_entry(entry, source));
  }
  std::unordered_set<std::string_view> names;
  for (const HubFile& file : info.files) {
    if (!names.insert(file.name).second) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("{}: lists '{}' twice", source, printable(file.name)));
    }
  }
  return info;
}

void throw_answer(const HttpAnswer& answer, const Asked& asked) {
  const std::string subject =
      asked.file.empty() ? asked.repository : fmt::format("{}/{}", asked.repository, asked.file);
  if (answer.failure != HttpFailure::kNone) throw_failure(answer, asked, subject);

  const std::string* code_header = answer.header("x-error-code");
  const std::string code = code_header == nullptr ? "" : *code_header;
  const std::string* message_header = answer.header("x-error-message");
  const std::string message = message_header == nullptr ? "" : ": " + printable(*message_header);
  if (code == "RevisionNotFound") {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{}: the model has no revision '{}'", asked.repository,
                            printable(asked.revision)),
                "name a branch, a tag or a full commit");
  }
  if (code == "EntryNotFound") {
    throw Error(ErrorKind::kNotFound, fmt::format("{}: no such file at revision '{}'", subject,
                                                  printable(asked.revision)));
  }
  if (code == "GatedRepo") {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: the model is gated (HTTP {})", asked.repository, answer.status),
                fmt::format("accept its conditions at {}/{} and set HF_TOKEN to your token",
                            asked.endpoint, asked.repository));
  }
  if (code == "RepoNotFound" || answer.status == 404 ||
      (answer.status == 401 && !asked.with_token)) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{}: no such model on {}, nor a file or folder of that name here",
                            asked.repository, asked.endpoint),
                no_access_hint(asked));
  }
  if (answer.status == 401) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: {} does not accept the token{}", subject, asked.endpoint, message),
                "set HF_TOKEN to a valid token, or unset it for public models");
  }
  if (answer.status == 403) {
    throw Error(ErrorKind::kResource, fmt::format("{}: access denied{}", subject, message),
                "the token may lack the right to read this model");
  }
  if (answer.status == 429) {
    const auto wait = retry_after(answer);
    throw Error(ErrorKind::kResource,
                fmt::format("{}: {} asks for fewer requests", subject, asked.endpoint),
                wait ? fmt::format("try again in {} seconds", wait->count())
                     : "try again later; with HF_TOKEN set the limits are higher");
  }
  throw Error(ErrorKind::kResource, fmt::format("{}: {} answered HTTP {}{}", subject,
                                                asked.endpoint, answer.status, message));
}

bool is_passing(const HttpAnswer& answer) {
  if (answer.failure != HttpFailure::kNone) {
    return answer.failure != HttpFailure::kCertificate && answer.failure != HttpFailure::kOther;
  }
  return answer.status == 408 || answer.status == 429 || answer.status == 500 ||
         answer.status == 502 || answer.status == 503 || answer.status == 504;
}

std::optional<std::chrono::seconds> retry_after(const HttpAnswer& answer) {
  const auto seconds = length_header(answer, "retry-after");
  if (!seconds || *seconds > 1'000'000) return std::nullopt;
  return std::chrono::seconds(*seconds);
}

std::optional<Bytes> length_header(const HttpAnswer& answer, std::string_view name) {
  const std::string* text = answer.header(name);
  return text == nullptr ? std::nullopt : number(*text);
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (dash == text.npos || slash == text.npos || slash < dash) return std::nullopt;
  const auto first = number(text.substr(0, dash));
  const auto last = number(text.substr(dash + 1, slash - dash - 1));
  const std::string_view total = text.substr(slash + 1);
  if (!first || !last || *last < *first) return std::nullopt;
  ContentRange range{*first, *last, number(total)};
  if (!range.total && total != "*") return std::nullopt;
  if (range.total && *range.total <= range.last) return std::nullopt;
  return range;
}

}  // namespace haul::core
