#pragma once

// Where in a slab of fixed size pieces lie: offsets only, no memory. Pieces are placed behind the
// last one, round and round, so that pieces which come and go in turn leave no gaps between them.
// One thread.

#include <map>
#include <optional>

#include "haul/bytes.h"

namespace haul::runtime {

class Arena {
 public:
  explicit Arena(Bytes size);

  // The offset of a free piece, or nothing when no gap is large enough.
  std::optional<Bytes> allocate(Bytes size);
  void free(Bytes offset);

  Bytes size() const { return size_; }
  Bytes used() const { return used_; }

 private:
  std::optional<Bytes> take(std::map<Bytes, Bytes>::iterator gap, Bytes size);

  Bytes size_;
  Bytes used_ = 0;
  Bytes next_ = 0;                // where the search begins
  std::map<Bytes, Bytes> gaps_;   // offset to size
  std::map<Bytes, Bytes> taken_;  // offset to size
};

}  // namespace haul::runtime
