#pragma once

// A hub on loopback, as a real HTTP server: model info, files by commit or branch, large files by
// redirect to a second server that plays another host. A test changes any answer with `alter`.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace haul::test {

struct ServerRequest {
  bool storage = false;  // came to the second server
  std::string method;
  std::string path;
  std::map<std::string, std::string> headers;  // names in lower case

  bool has(const std::string& header) const { return headers.count(header) > 0; }
  bool is_file(const std::string& name) const;
};

struct ServerAnswer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  bool ranges = true;                      // false: Range is not understood
  std::optional<std::size_t> break_after;  // ends the connection after that much of the body
  std::chrono::milliseconds pause{0};      // before each 4 KiB
};

struct ServedFile {
  std::string content;
  bool large = false;  // stored on the second server under its sha256
};

struct ServedModel {
  std::string commit;
  std::string library = "transformers";
  std::map<std::string, ServedFile> files;
};

class HubServer {
 public:
  // With a certificate and its key, both servers speak TLS.
  explicit HubServer(const std::string& certificate = "", const std::string& key = "");
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string endpoint() const;
  std::string storage() const;

  // To be set before the first request.
  std::map<std::string, ServedModel> models;
  std::function<void(const ServerRequest&, ServerAnswer&)> alter;

  std::vector<ServerRequest> requests() const;
  // How many requests (GET) for a file came to the server that holds its content.
  std::size_t fetches(const std::string& file) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_of(const std::string& content);
std::string git_sha1_of(const std::string& content);

}  // namespace haul::test
