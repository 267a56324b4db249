#pragma once

// Memory by pages, in huge ones where the system has them: reading at random finds them sooner.

#include <cstddef>
#include <memory>

namespace haul::tokenizers {

// Zeros that take no memory until they are touched.
class ZeroPages {
 public:
  // Throws std::bad_alloc.
  explicit ZeroPages(std::size_t bytes);

  // Aligned to a line of the processor's cache at least.
  template <class Word>
  Word* as() const {
    return static_cast<Word*>(begin_);
  }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(void* memory) const;
  };

  std::unique_ptr<void, Unmap> mapping_{nullptr, Unmap{0}};
  void* begin_ = nullptr;
};

}  // namespace haul::tokenizers
