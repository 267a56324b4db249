#include "cli/torch/early_memory.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "core/base/pages.h"

namespace haul::cli {
namespace {

constexpr std::size_t kWorthIt = std::size_t{256} << 20;
constexpr int kMostThreads = 12;
constexpr int kOtherThreads = 2;  // the libraries' start, and the driver's

pthread_mutex_t begins_or_ends = PTHREAD_MUTEX_INITIALIZER;
bool ended = false;
EarlyMemory memory;
std::array<pthread_t, kMostThreads> threads;
int thread_count = 0;
std::size_t next = 0;

// Pages that a program touches itself hold up nobody else's memory calls, as the system's own
// reading into them would.
void* bring(void* /*unused*/) {
  while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
    const std::size_t at = __atomic_fetch_add(&next, core::kHugePage, __ATOMIC_RELAXED);
    if (at >= memory.size) break;
    static_cast<volatile std::byte*>(memory.data)[at] = std::byte{0};
  }
  return nullptr;
}

double weights_in(const char* folder) {
  constexpr std::string_view kEnding = ".safetensors";
  DIR* const entries = ::opendir(folder);
  if (entries == nullptr) return 0;
  double sum = 0;
  while (const dirent* const entry = ::readdir(entries)) {
    struct stat file {};
    if (!std::string_view(entry->d_name).ends_with(kEnding)) continue;
    if (::fstatat(::dirfd(entries), entry->d_name, &file, 0) != 0) continue;
    sum += static_cast<double>(file.st_size);
  }
  ::closedir(entries);
  return sum;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// A size like 8GiB; below 0: another way to write one.
double bytes_of(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  double value = 0;
  double place = 0;  // of the last digit behind a point
  for (; !text.empty() && (text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
       text.remove_prefix(1)) {
    if (text[0] == '.') {
      place = 1;
    } else {
      value = 10 * value + (text[0] - '0');
      place *= 10;
    }
  }
  if (place > 0) value /= place;
  if (text.empty() || text == "B") return value;
  const std::size_t unit = kUnits.find(text[0]);
  if (unit == kUnits.npos || (text.substr(1) != "B" && text.substr(1) != "iB")) return -1;
  for (std::size_t i = 0; i <= unit; ++i) value *= text.size() == 3 ? 1024 : 1000;
  return value;
}

double available_memory() {
  std::FILE* const file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return 0;
  std::array<char, 128> line;
  unsigned long long kilobytes = 0;
  while (std::fgets(line.data(), line.size(), file) != nullptr) {
    if (std::sscanf(line.data(), "MemAvailable: %llu", &kilobytes) == 1) break;
  }
  std::fclose(file);
  return 1024 * static_cast<double>(kilobytes);
}

void start(std::size_t size) {
  const std::size_t room = size + core::kHugePage;
  void* const mapped = ::mmap(nullptr, room, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return;
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(begin) % core::kHugePage;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + size, core::kHugePage - before);
  memory = {begin + before, size, 0};
  ::madvise(memory.data, size, MADV_HUGEPAGE);
  const int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const int count = std::clamp(cores - kOtherThreads, 1, kMostThreads);
  while (thread_count < count && ::pthread_create(&threads[static_cast<std::size_t>(thread_count)],
                                                  nullptr, bring, nullptr) == 0) {
    ++thread_count;
  }
}

}  // namespace

std::size_t memory_wanted(const char* folder, std::string_view budgets) {
  double left = weights_in(folder);
  double ram = 0;
  while (!budgets.empty()) {
    const std::string_view item = budgets.substr(0, budgets.find(','));
    budgets.remove_prefix(std::min(budgets.size(), item.size() + 1));
    const std::size_t sign = item.rfind('=');
    if (sign == item.npos) return 0;
    const double bytes = bytes_of(trimmed(item.substr(sign + 1)));
    if (bytes < 0) return 0;
    const std::string_view key = trimmed(item.substr(0, sign));
    if (key == "cpu") ram = bytes;
    if (key != "cpu" && key != "disk") left -= bytes;
  }
  const double wanted = std::min({left, ram, 0.75 * available_memory()});
  return wanted < static_cast<double>(kWorthIt) ? 0 : static_cast<std::size_t>(wanted);
}

void begin_to_bring(std::size_t size) {
  ::pthread_mutex_lock(&begins_or_ends);
  if (!ended) start(size / core::kHugePage * core::kHugePage);
  ::pthread_mutex_unlock(&begins_or_ends);
}

EarlyMemory early_memory() {
  ::pthread_mutex_lock(&begins_or_ends);
  __atomic_store_n(&ended, true, __ATOMIC_RELAXED);
  ::pthread_mutex_unlock(&begins_or_ends);
  while (thread_count > 0) {
    ::pthread_join(threads[static_cast<std::size_t>(--thread_count)], nullptr);
  }
  EarlyMemory result = memory;
  result.brought = std::min(next, memory.size);
  memory = {};
  return result;
}

}  // namespace haul::cli
