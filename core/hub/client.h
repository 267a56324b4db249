#pragma once

// Requests to one hub: redirects, the token, retries. The token goes to the hub's own origin and
// nowhere else; redirects are http or https, never from https to http, and at most ten. May be
// called from any thread.

#include <atomic>
#include <functional>
#include <string>

#include "core/hub/answers.h"
#include "core/hub/http.h"
#include "core/hub/settings.h"

namespace haul::core {

class HubClient {
 public:
  explicit HubClient(HubSettings settings);

  const HubSettings& settings() const { return settings_; }

  // The address of a file: {endpoint}/{repository}/resolve/{revision}/{file}.
  Url file_url(const std::string& repository, const std::string& revision,
               const std::string& file) const;

  struct Get {
    Url url;
    std::string range;         // "bytes=0-99"; empty: all
    std::string if_range;      // an ETag that only the hub itself knows; not sent elsewhere
    bool bounded_time = true;  // false for files of any size
  };
  // One request with its redirects, tried once. The sink sees the last answer's body only.
  HttpAnswer get(const Get& get, const HttpSink& sink) const;
  // As get(), without a body. A redirect away from the hub is not followed but answered, because
  // it carries what the hub knows of the file.
  HttpAnswer head(const Url& url) const;

  // Calls `send` until its answer is no passing failure or the attempts are used up, and waits in
  // between, as long as Retry-After says where that is a minute at most.
  HttpAnswer with_retries(const std::function<HttpAnswer()>& send) const;
  // Waits before attempt number `attempt` (2, 3, …); false when there is to be none.
  bool wait_for_attempt(int attempt, const HttpAnswer& last) const;

  // A whole answer of at most `limit` bytes, retried. Throws what `asked` explains.
  std::string text(const Url& url, Bytes limit, const Asked& asked) const;
  // The bytes [first, last] of a file, retried; fewer when the file ends before.
  std::string range(const Url& url, Bytes first, Bytes last, const Asked& asked) const;

  Asked asked(const std::string& repository, const std::string& revision,
              const std::string& file) const;
  ModelInfo model_info(const std::string& repository, const std::string& revision) const;

 private:
  HttpAnswer send_once(const Get& get, bool head, const Url& url, const HttpSink& sink) const;

  HubSettings settings_;
  // Once something has answered, a refused connection is worth another try.
  mutable std::atomic<bool> reached_{false};
};

}  // namespace haul::core
