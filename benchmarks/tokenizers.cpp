// Times one tokenizer for benchmarks/tokenizers.py: loading it, and the ids of a file's lines on
// one thread and on all. Usage: bench_tokenizers TOKENIZER FILE, prints one line of JSON.

#include <chrono>
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/file.h"
#include "haul/tokenizer.h"

namespace {

double seconds(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_of(int times, const auto& work) {
  double best = seconds(work);
  for (int i = 1; i < times; ++i) best = std::min(best, seconds(work));
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s TOKENIZER FILE\n", argv[0]);
    return 2;
  }
  const double load = best_of(3, [&] { haul::Tokenizer::load(argv[1]); });
  const haul::Tokenizer tokenizer = haul::Tokenizer::load(argv[1]);
  const haul::core::MappedFile file(argv[2]);
  std::vector<std::string_view> documents;
  for (std::string_view rest = file.text(); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    documents.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::size_t count = 0;
  const auto encode = [&](unsigned threads) {
    count = tokenizer.encode_batch(documents, {}, threads).ids.size();
  };
  const double one = best_of(3, [&] { encode(1); });
  const double all = best_of(5, [&] { encode(0); });
  std::printf("{\"load\": %.6f, \"one\": %.6f, \"all\": %.6f, \"tokens\": %zu}\n", load, one, all,
              count);
}
