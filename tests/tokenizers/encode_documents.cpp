// Ids of whole documents, by the way that batches take, for tests/oracle. Usage: encode_documents
// TOKENIZER FILE; the file's documents end with a byte of 255 each. Prints a JSON array a line.

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "haul/error.h"
#include "haul/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s TOKENIZER FILE\n", argv[0]);
    return 2;
  }
  try {
    const haul::Tokenizer tokenizer = haul::Tokenizer::load(argv[1]);
    const haul::core::MappedFile file(argv[2]);
    std::vector<std::string_view> documents;
    for (std::string_view rest = file.text(); !rest.empty();) {
      documents.push_back(rest.substr(0, rest.find('\xFF')));
      rest.remove_prefix(std::min(documents.back().size() + 1, rest.size()));
    }
    const haul::EncodedBatch batch = tokenizer.encode_batch(documents);
    std::size_t at = 0;
    for (const std::size_t end : batch.ends) {
      const char* before = "[";
      if (at == end) std::fputs(before, stdout);
      for (; at < end; ++at, before = ",") std::printf("%s%u", before, batch.ids[at]);
      std::puts("]");
    }
  } catch (const haul::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
