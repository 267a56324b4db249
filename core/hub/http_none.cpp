#include "core/hub/http.h"
#include "haul/error.h"

namespace haul::core {

HttpAnswer http_send(const HttpRequest&, const HttpSink&) {
  throw Error(ErrorKind::kUnsupported, "this haul was built without libcurl and cannot download",
              "use a model that is on this machine, or build haul where libcurl's headers are");
}

}  // namespace haul::core
