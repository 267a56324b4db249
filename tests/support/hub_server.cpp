#include "tests/support/hub_server.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include "core/hub/hash.h"

namespace haul::test {
namespace {

constexpr std::size_t kPiece = 4096;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

ServerAnswer error(int status, const std::string& code) {
  ServerAnswer answer;
  answer.status = status;
  answer.headers = {{"X-Error-Code", code}, {"X-Error-Message", code}};
  answer.body = "{}";
  return answer;
}

std::string etag_of(const ServedFile& file) {
  return file.large ? sha256_of(file.content) : git_sha1_of(file.content);
}

ServerAnswer model_info(const std::string& name, const ServedModel& model) {
  nlohmann::json siblings = nlohmann::json::array();
  for (const auto& [path, file] : model.files) {
    nlohmann::json entry{
        {"rfilename", path}, {"size", file.content.size()}, {"blobId", git_sha1_of(file.content)}};
    if (file.large) {
      entry["lfs"] = {
          {"sha256", sha256_of(file.content)}, {"size", file.content.size()}, {"pointerSize", 130}};
    }
    siblings.push_back(entry);
  }
  ServerAnswer answer;
  answer.body = nlohmann::json{
      {"id", name},
      {"sha", model.commit},
      {"library_name", model.library},
      {"siblings",
       siblings}}.dump();
  return answer;
}

}  // namespace

std::string sha256_of(const std::string& content) {
  core::Sha256 hash;
  hash.update(bytes_of(content));
  return hash.finish();
}

std::string git_sha1_of(const std::string& content) {
  core::Sha1 hash;
  const std::string head = "blob " + std::to_string(content.size()) + '\0';
  hash.update(bytes_of(head));
  hash.update(bytes_of(content));
  return hash.finish();
}

bool ServerRequest::is_file(const std::string& name) const {
  return path.ends_with("/" + name);
}

struct HubServer::State {
  HubServer* owner = nullptr;
  std::string scheme = "http";
  std::unique_ptr<httplib::Server> hub;
  std::unique_ptr<httplib::Server> storage;
  int hub_port = 0;
  int storage_port = 0;
  std::thread hub_thread;
  std::thread storage_thread;
  mutable std::mutex mutex;
  std::vector<ServerRequest> requests;

  std::string origin(int port) const { return scheme + "://127.0.0.1:" + std::to_string(port); }

  ServerAnswer answer_file(const ServedModel& model, const std::string& name) const {
    const auto found = model.files.find(name);
    if (found == model.files.end()) {
      ServerAnswer answer = error(404, "EntryNotFound");
      answer.headers.emplace_back("X-Repo-Commit", model.commit);
      return answer;
    }
    const ServedFile& file = found->second;
    ServerAnswer answer;
    answer.headers = {{"X-Repo-Commit", model.commit}};
    if (!file.large) {
      answer.headers.emplace_back("ETag", '"' + etag_of(file) + '"');
      answer.body = file.content;
      return answer;
    }
    answer.status = 302;
    answer.headers.emplace_back("X-Linked-Etag", '"' + etag_of(file) + '"');
    answer.headers.emplace_back("X-Linked-Size", std::to_string(file.content.size()));
    answer.headers.emplace_back("Location", origin(storage_port) + "/store/" + name);
    return answer;
  }

  // "/api/models/NAME/revision/REV" and "/NAME/resolve/REV/FILE".
  ServerAnswer answer_hub(const std::string& path) const {
    for (const auto& [name, model] : owner->models) {
      const std::string info = "/api/models/" + name + "/revision/";
      const std::string resolve = "/" + name + "/resolve/";
      const bool is_info = path.starts_with(info);
      if (!is_info && !path.starts_with(resolve)) continue;
      const std::string rest = path.substr(is_info ? info.size() : resolve.size());
      const std::string revision = rest.substr(0, rest.find('/'));
      if (revision != "main" && revision != model.commit) return error(404, "RevisionNotFound");
      if (is_info) return model_info(name, model);
      return answer_file(model, rest.substr(revision.size() + 1));
    }
    return error(404, "RepoNotFound");
  }

  ServerAnswer answer_storage(const std::string& path) const {
    for (const auto& [name, model] : owner->models) {
      for (const auto& [file_name, file] : model.files) {
        if (path != "/store/" + file_name) continue;
        ServerAnswer answer;
        answer.headers = {{"ETag", "\"of-the-store\""}};
        answer.body = file.content;
        return answer;
      }
    }
    ServerAnswer answer;
    answer.status = 404;
    return answer;
  }

  void serve(bool is_storage, const httplib::Request& request, httplib::Response& response) {
    ServerRequest seen{is_storage, request.method, request.path, {}};
    for (const auto& [name, value] : request.headers) seen.headers[lower(name)] = value;
    {
      const std::scoped_lock lock(mutex);
      requests.push_back(seen);
    }
    auto answer = std::make_shared<ServerAnswer>(is_storage ? answer_storage(request.path)
                                                            : answer_hub(request.path));
    if (owner->alter) owner->alter(seen, *answer);
    for (const auto& [name, value] : answer->headers) response.set_header(name, value);

    const auto if_range = seen.headers.find("if-range");
    const std::string own_etag = response.get_header_value("ETag");
    const bool changed = if_range != seen.headers.end() && if_range->second != own_etag;
    // httplib slices by the request's ranges; it has no other way to be told not to.
    if (!answer->ranges || changed) const_cast<httplib::Request&>(request).ranges.clear();
    response.status = answer->status;
    if (answer->status == 200 && !request.ranges.empty()) response.status = 206;
    if (answer->body.empty()) return;
    auto sent = std::make_shared<std::size_t>(0);
    response.set_content_provider(
        answer->body.size(), "application/octet-stream",
        [answer, sent](std::size_t offset, std::size_t length, httplib::DataSink& sink) {
          if (answer->break_after && *sent >= *answer->break_after) return false;
          std::this_thread::sleep_for(answer->pause);
          std::size_t count = std::min(kPiece, length);
          if (answer->break_after) count = std::min(count, *answer->break_after - *sent);
          *sent += count;
          return sink.write(answer->body.data() + offset, count);
        });
  }

  std::thread start(httplib::Server* server, bool is_storage, int* port) {
    const auto handler = [this, is_storage](const httplib::Request& request,
                                            httplib::Response& response) {
      serve(is_storage, request, response);
    };
    server->Get(".*", handler);
    server->set_keep_alive_max_count(1);
    *port = server->bind_to_any_port("127.0.0.1");
    if (*port < 0) throw std::runtime_error("no port on loopback");
    return std::thread([server] { server->listen_after_bind(); });
  }
};

HubServer::HubServer(const std::string& certificate, const std::string& key)
    : state_(std::make_unique<State>()) {
  state_->owner = this;
  ::setenv("no_proxy", "*", 1);  // loopback is not behind the machine's proxy
  const auto make = [&]() -> std::unique_ptr<httplib::Server> {
    if (certificate.empty()) return std::make_unique<httplib::Server>();
    return std::make_unique<httplib::SSLServer>(certificate.c_str(), key.c_str());
  };
  if (!certificate.empty()) state_->scheme = "https";
  state_->hub = make();
  state_->storage = make();
  state_->hub_thread = state_->start(state_->hub.get(), false, &state_->hub_port);
  state_->storage_thread = state_->start(state_->storage.get(), true, &state_->storage_port);
  while (!state_->hub->is_running() || !state_->storage->is_running()) std::this_thread::yield();
}

HubServer::~HubServer() {
  state_->hub->stop();
  state_->storage->stop();
  state_->hub_thread.join();
  state_->storage_thread.join();
}

std::string HubServer::endpoint() const {
  return state_->origin(state_->hub_port);
}

std::string HubServer::storage() const {
  return state_->origin(state_->storage_port);
}

std::vector<ServerRequest> HubServer::requests() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->requests;
}

std::size_t HubServer::fetches(const std::string& file) const {
  std::size_t count = 0;
  for (const ServerRequest& request : requests()) {
    bool large = false;
    for (const auto& [name, model] : models) {
      const auto found = model.files.find(file);
      large = large || (found != model.files.end() && found->second.large);
    }
    if (request.is_file(file) && request.method == "GET" && request.storage == large) ++count;
  }
  return count;
}

}  // namespace haul::test
