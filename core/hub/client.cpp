#include "core/hub/client.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "core/hub/name.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr int kMaxRedirects = 10;
constexpr std::chrono::seconds kLongestWait{60};
constexpr std::chrono::seconds kBoundedTime{300};
constexpr Bytes kMaxListing = 64 * kMiB;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool discard(const HttpAnswer&, std::span<const std::byte>) {
  return true;
}

void append(std::span<const std::byte> bytes, std::string* text) {
  text->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

HubClient::HubClient(HubSettings settings) : settings_(std::move(settings)) {}

Url HubClient::file_url(const std::string& repository, const std::string& revision,
                        const std::string& file) const {
  Url url = settings_.endpoint;
  url.target += fmt::format("/{}/resolve/{}/{}", repository, url_encoded(revision, false),
                            url_encoded(file, true));
  return url;
}

HttpAnswer HubClient::send_once(const Get& get, bool head, const Url& url,
                                const HttpSink& sink) const {
  HttpRequest request;
  request.url = url.text();
  request.head = head;
  request.connect_timeout = settings_.connect_timeout;
  request.stall_timeout = settings_.stall_timeout;
  if (get.bounded_time) request.total_timeout = kBoundedTime;
  // Lengths and ranges are those of the file only when nothing is compressed on the way.
  request.headers = {"Accept-Encoding: identity"};
  if (!get.range.empty()) request.headers.push_back("Range: " + get.range);
  if (url.same_origin(settings_.endpoint)) {
    if (!settings_.token.empty()) {
      request.headers.push_back("Authorization: Bearer " + settings_.token);
    }
    if (!get.if_range.empty()) {
      request.headers.push_back(fmt::format("If-Range: \"{}\"", get.if_range));
    }
  }
  HttpAnswer answer = http_send(request, sink);
  if (answer.status != 0) reached_ = true;
  return answer;
}

HttpAnswer HubClient::get(const Get& get, const HttpSink& sink) const {
  Url url = get.url;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    const HttpSink last_only = [&](const HttpAnswer& answer, std::span<const std::byte> bytes) {
      return is_redirect(answer.status) ? false : sink(answer, bytes);
    };
    HttpAnswer answer = send_once(get, false, url, last_only);
    const std::string* location = answer.header("location");
    if (!is_redirect(answer.status) || location == nullptr) return answer;
    url = redirect_target(url, *location);
  }
  throw Error(ErrorKind::kResource,
              fmt::format("{}: redirected more than {} times", get.url.text(), kMaxRedirects));
}

HttpAnswer HubClient::head(const Url& from) const {
  Url url = from;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    HttpAnswer answer = send_once({from, "", "", true}, true, url, discard);
    const std::string* location = answer.header("location");
    if (!is_redirect(answer.status) || location == nullptr) return answer;
    const Url next = redirect_target(url, *location);
    if (!next.same_origin(settings_.endpoint)) return answer;
    // A hub that stores large files itself tells of them before it redirects.
    if (answer.header("x-linked-etag") != nullptr) return answer;
    url = next;
  }
  throw Error(ErrorKind::kResource,
              fmt::format("{}: redirected more than {} times", from.text(), kMaxRedirects));
}

bool HubClient::wait_for_attempt(int attempt, const HttpAnswer& last) const {
  if (attempt > settings_.attempts || !is_passing(last)) return false;
  const bool unreached =
      last.failure == HttpFailure::kResolve || last.failure == HttpFailure::kConnect;
  if (unreached && !reached_) return false;
  std::chrono::milliseconds wait = settings_.first_wait * (1 << std::min(attempt - 2, 10));
  if (const auto asked_for = retry_after(last)) {
    if (*asked_for > kLongestWait) return false;
    wait = *asked_for;
  }
  std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(wait, kLongestWait));
  return true;
}

HttpAnswer HubClient::with_retries(const std::function<HttpAnswer()>& send) const {
  for (int attempt = 2;; ++attempt) {
    HttpAnswer answer = send();
    if (!wait_for_attempt(attempt, answer)) return answer;
  }
}

std::string HubClient::text(const Url& url, Bytes limit, const Asked& asked) const {
  std::string body;
  const HttpAnswer answer = with_retries([&] {
    body.clear();
    return get({url, "", "", true}, [&](const HttpAnswer&, std::span<const std::byte> bytes) {
      append(bytes, &body);
      return body.size() <= limit;
    });
  });
  if (answer.failure != HttpFailure::kNone || answer.status != 200) throw_answer(answer, asked);
  if (body.size() > limit) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: the answer is longer than {}", url.text(), format_bytes(limit)));
  }
  return body;
}

std::string HubClient::range(const Url& url, Bytes first, Bytes last, const Asked& asked) const {
  const Bytes wanted = last - first + 1;
  std::string body;
  Bytes skip = 0;
  const HttpAnswer answer = with_retries([&] {
    body.clear();
    skip = 0;
    const Get part{url, fmt::format("bytes={}-{}", first, last), "", true};
    return get(part, [&](const HttpAnswer& head, std::span<const std::byte> bytes) {
      // A server without ranges sends the file from its beginning.
      if (head.status == 200 && skip < first) {
        const Bytes passed = std::min<Bytes>(first - skip, bytes.size());
        skip += passed;
        bytes = bytes.subspan(passed);
      }
      append(bytes.first(std::min<Bytes>(bytes.size(), wanted - body.size())), &body);
      return body.size() < wanted;
    });
  });
  const bool partial = answer.status == 206;
  if (answer.failure != HttpFailure::kNone || (!partial && answer.status != 200)) {
    throw_answer(answer, asked);
  }
  if (partial) {
    const std::string* text = answer.header("content-range");
    const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
    if (!range || range->first != first) {
      throw Error(
          ErrorKind::kCorrupt,
          fmt::format("{}/{}: asked for bytes {} to {}, the answer is about '{}'", asked.repository,
                      asked.file, first, last, text == nullptr ? "" : printable(*text)));
    }
  }
  return body;
}

Asked HubClient::asked(const std::string& repository, const std::string& revision,
                       const std::string& file) const {
  return {settings_.endpoint.origin() + settings_.endpoint.target, repository, revision, file,
          !settings_.token.empty()};
}

ModelInfo HubClient::model_info(const std::string& repository, const std::string& revision) const {
  Url url = settings_.endpoint;
  url.target += fmt::format("/api/models/{}/revision/{}?blobs=true", repository,
                            url_encoded(revision, false));
  const std::string body = text(url, kMaxListing, asked(repository, revision, ""));
  return parse_model_info(body, url.text());
}

}  // namespace haul::core
