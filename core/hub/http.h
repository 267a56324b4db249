#pragma once

// One HTTP request and its answer, no more: no redirect is followed, nothing is tried again.
// Certificates are checked; SSL_CERT_FILE may name the authorities. May be called from any thread;
// each keeps its connections. Implemented with libcurl, which is loaded by the first request, or by
// a file that says that haul was built without it.

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace haul::core {

enum class HttpFailure {
  kNone,
  kResolve,      // the host's name is unknown
  kConnect,      // nobody listens there
  kTimeout,      // no connection in time, or the transfer stood still
  kBroken,       // the connection ended in the middle
  kCertificate,  // the server could not prove who it is
  kOther,
};

struct HttpRequest {
  std::string url;  // http or https
  bool head = false;
  std::vector<std::string> headers;  // "Name: value"
  std::chrono::seconds connect_timeout{10};
  std::chrono::seconds stall_timeout{10};
  std::chrono::seconds total_timeout{0};  // 0: none
};

struct HttpAnswer {
  int status = 0;                                            // 0 when no answer came
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  HttpFailure failure = HttpFailure::kNone;
  std::string reason;  // of the failure

  // The value of a header, null when it is not there; `name` in lower case.
  const std::string* header(std::string_view name) const;
};

// Takes the body piece by piece, with the status and headers known; false ends the transfer, which
// is then no failure. What it throws leaves http_send.
using HttpSink = std::function<bool(const HttpAnswer& answer, std::span<const std::byte> bytes)>;

HttpAnswer http_send(const HttpRequest& request, const HttpSink& sink);

// Adds a line "Name: value" of an answer. A status line begins a new set of headers. Lines that are
// neither are passed over; false when there are more than an answer may have.
bool take_header_line(std::string_view line, HttpAnswer* answer);

}  // namespace haul::core
