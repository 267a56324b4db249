#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <memory>

#include <curl/curl.h>
#include <fmt/format.h>

#include "core/hub/http.h"
#include "haul/error.h"

// The macros that check option types stand in the way of calls through pointers.
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace haul::core {
namespace {

// libcurl brings some forty libraries with it: a command that needs no network does not load them.
struct Curl {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
};

[[noreturn]] void fail_to_load(const char* why) {
  throw Error(ErrorKind::kUnsupported, fmt::format("cannot load libcurl: {}", why),
              "install libcurl (Debian: libcurl4) to download models");
}

template <typename Function>
void bind(void* library, const char* name, Function* function) {
  void* address = ::dlsym(library, name);
  if (address == nullptr) fail_to_load(name);
  *function = reinterpret_cast<Function>(address);
}

Curl load_curl() {
  void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail_to_load(::dlerror());
  Curl curl{};
  bind(library, "curl_global_init", &curl.global_init);
  bind(library, "curl_easy_init", &curl.easy_init);
  bind(library, "curl_easy_reset", &curl.easy_reset);
  bind(library, "curl_easy_cleanup", &curl.easy_cleanup);
  bind(library, "curl_easy_setopt", &curl.easy_setopt);
  bind(library, "curl_easy_getinfo", &curl.easy_getinfo);
  bind(library, "curl_easy_perform", &curl.easy_perform);
  bind(library, "curl_easy_strerror", &curl.easy_strerror);
  bind(library, "curl_slist_append", &curl.slist_append);
  bind(library, "curl_slist_free_all", &curl.slist_free_all);
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) fail_to_load("it does not start");
  return curl;
}

const Curl& curl() {
  static const Curl loaded = load_curl();
  return loaded;
}

// One handle a thread: it keeps connections open between requests.
CURL* thread_handle() {
  struct Deleter {
    void operator()(CURL* handle) const { curl().easy_cleanup(handle); }
  };
  thread_local const std::unique_ptr<CURL, Deleter> handle(curl().easy_init());
  if (!handle) throw Error(ErrorKind::kResource, "libcurl cannot start a transfer");
  return handle.get();
}

struct Transfer {
  CURL* handle;
  const HttpSink& sink;
  HttpAnswer answer;
  bool stopped = false;
  std::exception_ptr thrown;
};

std::size_t on_header(char* data, std::size_t, std::size_t size, void* context) {
  auto* transfer = static_cast<Transfer*>(context);
  return take_header_line({data, size}, &transfer->answer) ? size : 0;
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* context) {
  auto* transfer = static_cast<Transfer*>(context);
  try {
    long status = 0;
    curl().easy_getinfo(transfer->handle, CURLINFO_RESPONSE_CODE, &status);
    transfer->answer.status = static_cast<int>(status);
    if (transfer->sink(transfer->answer, std::as_bytes(std::span(data, size)))) return size;
    transfer->stopped = true;
  } catch (...) {
    transfer->thrown = std::current_exception();
  }
  return 0;
}

HttpFailure failure_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return HttpFailure::kNone;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return HttpFailure::kResolve;
    case CURLE_COULDNT_CONNECT:
      return HttpFailure::kConnect;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpFailure::kTimeout;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
      return HttpFailure::kBroken;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return HttpFailure::kCertificate;
    default:
      return HttpFailure::kOther;
  }
}

}  // namespace

HttpAnswer http_send(const HttpRequest& request, const HttpSink& sink) {
  CURL* handle = thread_handle();
  Transfer transfer{handle, sink, {}, false, nullptr};
  char reason[CURL_ERROR_SIZE] = "";

  curl_slist* list = nullptr;
  for (const std::string& header : request.headers) {
    list = curl().slist_append(list, header.c_str());
  }
  const std::unique_ptr<curl_slist, decltype(curl().slist_free_all)> headers(list,
                                                                             curl().slist_free_all);
  const auto set = [handle](CURLoption option, auto value) {
    if (curl().easy_setopt(handle, option, value) != CURLE_OK) {
      throw Error(ErrorKind::kInternal, fmt::format("libcurl refuses option {}", int{option}));
    }
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOBODY, request.head ? 1L : 0L);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_USERAGENT, "haul/0.1");
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  if (const char* authorities = std::getenv("SSL_CERT_FILE")) set(CURLOPT_CAINFO, authorities);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_timeout.count()));
  set(CURLOPT_TIMEOUT, static_cast<long>(request.total_timeout.count()));
  // Larger pieces; a handle in use before may keep the size it has.
  curl().easy_setopt(handle, CURLOPT_BUFFERSIZE, 512L * 1024);
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(reason));
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &transfer);

  const CURLcode code = curl().easy_perform(handle);
  long status = 0;
  curl().easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  transfer.answer.status = static_cast<int>(status);
  if (!transfer.stopped) {
    transfer.answer.failure = failure_of(code);
    if (code != CURLE_OK) {
      transfer.answer.reason = reason[0] != '\0' ? reason : curl().easy_strerror(code);
    }
  }
  // The handle outlives what its options point to.
  curl().easy_reset(handle);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  return std::move(transfer.answer);
}

}  // namespace haul::core
