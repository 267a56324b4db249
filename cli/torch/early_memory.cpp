#include "cli/torch/early_memory.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "core/base/pages.h"

namespace haul::cli {
namespace {

constexpr std::size_t kWorthIt = std::size_t{256} << 20;
constexpr int kMostThreads = 12;
constexpr int kOtherThreads = 2;  // the libraries' start, and the driver's

pthread_mutex_t begins_or_ends = PTHREAD_MUTEX_INITIALIZER;
bool ended = false;
EarlyMemory memory;
std::size_t to_bring = 0;
std::array<pthread_t, kMostThreads> threads;
int thread_count = 0;
std::size_t next = 0;

// Pages that a program touches itself hold up nobody else's memory calls, as the system's own
// reading into them would.
void* bring(void* /*unused*/) {
  const auto page_size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
    const std::size_t at = __atomic_fetch_add(&next, core::kHugePage, __ATOMIC_RELAXED);
    if (at >= to_bring) break;
    // Where there are no huge pages each small one has to be touched.
    for (std::size_t page = at; page < at + core::kHugePage; page += page_size) {
      static_cast<volatile std::byte*>(memory.data)[page] = std::byte{0};
    }
  }
  return nullptr;
}

double weights_in(const char* folder) {
  constexpr std::string_view kEnding = ".safetensors";
  constexpr std::string_view kSecondCopy = "consolidated";
  DIR* const entries = ::opendir(folder);
  if (entries == nullptr) return 0;
  double sum = 0;
  while (const dirent* const entry = ::readdir(entries)) {
    struct stat file {};
    const std::string_view name = entry->d_name;
    if (!name.ends_with(kEnding) || name.starts_with(kSecondCopy)) continue;
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
  if (text.empty()) return value;
  const std::size_t unit = kUnits.find(text[0]);
  if (unit == kUnits.npos || (text.substr(1) != "B" && text.substr(1) != "iB")) return -1;
  for (std::size_t i = 0; i <= unit; ++i) value *= text.size() == 3 ? 1024 : 1000;
  return value;
}

// The number in a file's first line of this format; `other` where there is none.
double number_in(const char* path, const char* format, double other) {
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return other;
  std::array<char, 256> line;
  unsigned long long number = 0;
  bool found = false;
  while (!found && std::fgets(line.data(), line.size(), file) != nullptr) {
    found = std::sscanf(line.data(), format, &number) == 1;
  }
  std::fclose(file);
  return found ? static_cast<double>(number) : other;
}

// The least that a control group and those around it leave, of two files in each.
double left_in(std::string_view mount, std::string_view group, const char* most_name,
               const char* used_name) {
  double left = std::numeric_limits<double>::max();
  for (;; group = group.substr(0, group.rfind('/'))) {
    const auto number = [&](const char* name, double other) {
      std::array<char, 1024> path;
      std::snprintf(path.data(), path.size(), "%.*s%.*s/%s", static_cast<int>(mount.size()),
                    mount.data(), static_cast<int>(group.size()), group.data(), name);
      return number_in(path.data(), "%llu", other);
    };
    const double most = number(most_name, -1);  // which may be "max"
    if (most >= 0) left = std::min(left, most - number(used_name, 0));
    if (group.empty()) return left;
  }
}

// By the process's control groups, of either kind.
double left_by_groups() {
  std::FILE* const file = std::fopen("/proc/self/cgroup", "re");
  if (file == nullptr) return 0;
  double left = std::numeric_limits<double>::max();
  std::array<char, 700> line;
  while (std::fgets(line.data(), line.size(), file) != nullptr) {
    std::string_view group = line.data();
    group = group.substr(0, group.find('\n'));
    const bool of_memory = group.find(":memory:") != group.npos;
    if (!of_memory && !group.starts_with("0::")) continue;
    group.remove_prefix(std::min(group.size(), group.find('/')));
    left = std::min(left, of_memory
                              ? left_in("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                        "memory.usage_in_bytes")
                              : left_in("/sys/fs/cgroup", group, "memory.max", "memory.current"));
  }
  std::fclose(file);
  return left;
}

// Without taking so many bytes of files out of the page cache, which the system counts as
// available. A group counts its own as used.
double available_beside(double files) {
  constexpr double kKilobyte = 1024;
  constexpr double kPart = 0.75;
  const double available = kKilobyte * number_in("/proc/meminfo", "MemAvailable: %llu", 0);
  return std::min(kPart * available - files, kPart * left_by_groups());
}

int cores() {
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

void start(const MemoryWanted& wanted) {
  constexpr std::size_t kSlack = std::size_t{1} << 30;  // between weights, and behind them
  const std::size_t size = (wanted.weights + kSlack) / core::kHugePage * core::kHugePage;
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
  to_bring = wanted.in_ram / core::kHugePage * core::kHugePage;
  const int count = std::clamp(cores() - kOtherThreads, 1, kMostThreads);
  while (thread_count < count && ::pthread_create(&threads[static_cast<std::size_t>(thread_count)],
                                                  nullptr, bring, nullptr) == 0) {
    ++thread_count;
  }
}

}  // namespace

BudgetText take_budget(std::string_view* budgets) {
  const std::string_view item = budgets->substr(0, budgets->find(','));
  budgets->remove_prefix(std::min(budgets->size(), item.size() + 1));
  const std::size_t sign = std::min(item.rfind('='), item.size());
  return {trimmed(item.substr(0, sign)), trimmed(item.substr(std::min(item.size(), sign + 1)))};
}

MemoryWanted memory_wanted(const char* folder, std::string_view budgets) {
  const double weights = weights_in(folder);
  double left = weights;
  double ram = 0;
  while (!budgets.empty()) {
    const BudgetText budget = take_budget(&budgets);
    const double bytes = budget.size.empty() ? -1 : bytes_of(budget.size);
    if (bytes < 0) return {};
    if (budget.device == "cpu") ram = bytes;
    if (budget.device != "cpu" && budget.device != "disk") left -= bytes;
  }
  // Nothing is gained where the weights' files would have to leave the page cache for it.
  const double wanted = std::min({left, ram, available_beside(weights)});
  if (!(wanted >= static_cast<double>(kWorthIt))) return {};
  return {static_cast<std::size_t>(weights), static_cast<std::size_t>(wanted)};
}

void begin_to_bring(const MemoryWanted& wanted) {
  ::pthread_mutex_lock(&begins_or_ends);
  if (!ended) start(wanted);
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
  result.brought = std::min(next, to_bring);
  memory = {};
  return result;
}

}  // namespace haul::cli
