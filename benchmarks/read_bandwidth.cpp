// GB/s that all cores together read from memory: the most that decoding on the CPU can get.
//
// Sums of 1 GiB that no cache holds, each thread its part, the best of several rounds.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

int main() {
  constexpr std::size_t kWords = std::size_t{1} << 27;
  const std::vector<std::uint64_t> words(kWords, 1);
  const std::size_t count = std::max(1U, std::thread::hardware_concurrency());
  double best = 0;
  for (int round = 0; round < 7; ++round) {
    std::vector<std::uint64_t> sums(count);
    const auto begin = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < count; ++t) {
        threads.emplace_back([&, t] {
          sums[t] = std::accumulate(words.data() + kWords * t / count,
                                    words.data() + kWords * (t + 1) / count, std::uint64_t{0});
        });
      }
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}) != kWords) return 1;
    best = std::max(best, static_cast<double>(kWords * sizeof(words[0])) / taken.count() / 1e9);
  }
  std::printf("%.2f\n", best);
  return 0;
}
