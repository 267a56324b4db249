#include "haul/error.h"

#include <utility>

namespace haul {

Error::Error(ErrorKind kind, std::string message, std::string hint)
    : kind_(kind), message_(std::move(message)), hint_(std::move(hint)) {}

void Error::add_context(std::string_view where) {
  message_.insert(0, ": ");
  message_.insert(0, where);
}

}  // namespace haul
