// How fast DiskReader reads a file of weights of 16 MB, beside the limit of the machine: loops that
// do nothing but read with O_DIRECT, into the same memory. Cold: the file is not in the page cache;
// warm: all of it is, and the rival is read(). The ways take turns; medians of the rounds.
//   bench_disk_reader [FOLDER] [GB] [ROUNDS] [CHUNK_MIB] [DEPTH] [THREADS]

#include "runtime/tiers/disk_reader.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <liburing.h>

#include "haul/bytes.h"

namespace {

using haul::Bytes;
using haul::kMiB;
using haul::runtime::DiskReader;
using haul::runtime::kReadSlack;

constexpr Bytes kWeight = 16'000'000;
constexpr Bytes kSlot = (kWeight + 2 * kReadSlack) / 4096 * 4096 + 4096;
constexpr Bytes kBlock = 8 * kMiB;
constexpr Bytes kSlots = 8;  // weights that are under way or in memory at once

struct Memory {
  explicit Memory(Bytes size)
      : bytes(static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096))) {
    std::memset(bytes.get(), 1, size);
  }
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<std::byte, Free> bytes;
};

void must(bool well, const char* what) {
  if (well) return;
  std::perror(what);
  std::exit(1);
}

struct File {
  File(const std::string& path, int flags) : descriptor(::open(path.c_str(), O_RDONLY | flags)) {
    must(descriptor >= 0, "open");
  }
  ~File() { ::close(descriptor); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor;
};

void write_file(const std::string& path, Bytes size) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  must(file >= 0, "create");
  std::vector<std::uint32_t> block(kBlock / 4);
  std::uint32_t number = 1;
  for (Bytes at = 0; at < size; at += kBlock) {
    for (auto& word : block) word = number = number * 1664525 + 1013904223;
    must(::write(file, block.data(), kBlock) == static_cast<ssize_t>(kBlock), "write");
  }
  must(::fsync(file) == 0, "fsync");
  ::close(file);
}

void drop_from_cache(const std::string& path) {
  const File file(path, 0);
  must(::posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED) == 0, "fadvise");
}

void read_plainly(const std::string& path, Bytes size) {
  const File file(path, 0);
  static Memory to(kBlock);
  for (Bytes at = 0; at < size; at += kBlock) {
    must(::pread(file.descriptor, to.bytes.get(), kBlock, static_cast<off_t>(at)) > 0, "pread");
  }
}

// read() by one thread into memory of many weights, as a loader would.
Bytes read_weights_plainly(const std::string& path, Bytes size, std::byte* slots) {
  const File file(path, 0);
  Bytes slot = 0;
  for (Bytes at = 0; at + kWeight <= size; at += kWeight) {
    std::byte* to = slots + slot * kSlot;
    Bytes got = 0;
    while (got < kWeight) {
      const ssize_t count = ::read(file.descriptor, to + got, kWeight - got);
      must(count > 0, "read");
      got += static_cast<Bytes>(count);
    }
    slot = (slot + 1) % kSlots;
  }
  return size / kWeight * kWeight;
}

// Where the limit's block at a file offset goes: all of the slots are used, in turn.
std::byte* place_block(std::byte* slots, Bytes offset) {
  return slots + offset % (kSlots * kSlot / kBlock * kBlock);
}

Bytes limit_by_threads(const std::string& path, Bytes size, std::byte* slots) {
  const File file(path, O_DIRECT);
  std::atomic<Bytes> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (;;) {
        const Bytes at = next.fetch_add(kBlock);
        if (at >= size) return;
        must(::pread(file.descriptor, place_block(slots, at), kBlock, static_cast<off_t>(at)) > 0,
             "pread O_DIRECT");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return size;
}

Bytes limit_by_uring(const std::string& path, Bytes size, std::byte* slots) {
  constexpr Bytes kDepth = kSlots * kSlot / kBlock;  // 15 or 16
  const File file(path, O_DIRECT);
  io_uring ring{};
  must(::io_uring_queue_init(kDepth, &ring, 0) == 0, "io_uring");
  Bytes next = 0;
  Bytes under_way = 0;
  const auto ask = [&](Bytes slot) {
    if (next >= size) return;
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring);
    ::io_uring_prep_read(entry, file.descriptor, slots + slot * kBlock, kBlock, next);
    ::io_uring_sqe_set_data64(entry, slot);
    next += kBlock;
    ++under_way;
  };
  for (Bytes slot = 0; slot < kDepth; ++slot) ask(slot);
  while (under_way > 0) {
    ::io_uring_submit_and_wait(&ring, 1);
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring, &entry) == 0) {
      must(entry->res > 0, "io_uring read");
      const Bytes slot = ::io_uring_cqe_get_data64(entry);
      ::io_uring_cqe_seen(&ring, entry);
      --under_way;
      ask(slot);
    }
  }
  ::io_uring_queue_exit(&ring);
  return size;
}

// The weights one after another, kSlots of them under way, each at `phase` behind a multiple of
// 4096 of the file and in slots at multiples of 4096.
Bytes read_by_haul(DiskReader& reader, const std::string& path, Bytes size, Bytes phase,
                   std::byte* slots) {
  const int file = reader.open(path);
  const Bytes weights = (size - 4096) / kWeight;
  std::latch ended(static_cast<std::ptrdiff_t>(weights));
  std::atomic<Bytes> next{0};
  std::function<void(Bytes)> ask = [&](Bytes slot) {
    const Bytes weight = next.fetch_add(1);
    if (weight >= weights) return;
    std::byte* to = slots + slot * kSlot + kReadSlack;
    const Bytes offset = weight * kWeight / 4096 * 4096 + phase;
    reader.read({file, offset, kWeight, to, [&, slot](std::exception_ptr error) {
                   if (error) std::rethrow_exception(error);
                   ask(slot);
                   ended.count_down();
                 }});
  };
  for (Bytes slot = 0; slot < kSlots; ++slot) ask(slot);
  ended.wait();
  return weights * kWeight;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Row {
  const char* name;
  bool warm;
  std::function<Bytes()> work;   // gives the bytes that it read
  std::vector<double> speeds{};  // GB/s
  std::vector<double> cpu{};     // seconds a GB
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const std::filesystem::path folder =
      argc > 1 ? std::filesystem::path(argv[1]) : std::filesystem::temp_directory_path();
  const std::string path = (folder / "haul-disk-benchmark").string();
  const Bytes size = static_cast<Bytes>(argument(2, 2)) * 1'000'000'000 / kBlock * kBlock;
  const int rounds = argument(3, 10);
  DiskReader::Options options;
  options.chunk = static_cast<Bytes>(argument(4, static_cast<int>(options.chunk / kMiB))) * kMiB;
  options.depth = argument(5, options.depth);
  options.threads = argument(6, options.threads);
  write_file(path, size);
  {
    Memory slots(kSlots * kSlot);
    DiskReader::Options plain = options;
    plain.way = DiskReader::Way::kPlain;
    DiskReader reader(options);
    DiskReader plain_reader(plain);
    const auto by_haul = [&](DiskReader& with, Bytes phase) {
      return [&, phase] { return read_by_haul(with, path, size, phase, slots.bytes.get()); };
    };
    Row rows[] = {
        {"cold limit: 4 threads, pread 8 MiB", false,
         [&] { return limit_by_threads(path, size, slots.bytes.get()); }},
        {"cold limit: io_uring, 8 MiB x 16", false,
         [&] { return limit_by_uring(path, size, slots.bytes.get()); }},
        {"cold haul, weights in step", false, by_haul(reader, 0)},
        {"cold haul, weights moved", false, by_haul(reader, 200)},
        {"cold haul, plain", false, by_haul(plain_reader, 0)},
        {"cold read()", false,
         [&] { return read_weights_plainly(path, size, slots.bytes.get() + kReadSlack); }},
        {"warm haul, weights in step", true, by_haul(reader, 0)},
        {"warm haul, weights moved", true, by_haul(reader, 200)},
        {"warm haul, plain", true, by_haul(plain_reader, 0)},
        {"warm read()", true,
         [&] { return read_weights_plainly(path, size, slots.bytes.get() + kReadSlack); }},
    };
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t turn = 0; turn < std::size(rows); ++turn) {
        // Another one begins each round: some disks give a fast start and then less.
        Row& row = rows[(turn + static_cast<std::size_t>(round)) % std::size(rows)];
        row.warm ? read_plainly(path, size) : drop_from_cache(path);
        const double cpu = cpu_seconds();
        const auto start = std::chrono::steady_clock::now();
        const Bytes bytes = row.work();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        const double gigabytes = static_cast<double>(bytes) / 1e9;
        row.speeds.push_back(gigabytes / taken.count());
        row.cpu.push_back((cpu_seconds() - cpu) / gigabytes);
      }
    }
    std::printf("chunk %d MiB, depth %d (0: as the reader has it)\n",
                static_cast<int>(options.chunk / kMiB), options.depth);
    for (const Row& row : rows) {
      std::printf("%-36s %6.2f GB/s  %5.2f CPU s/GB\n", row.name, median(row.speeds),
                  median(row.cpu));
    }
    const double limit = std::max(median(rows[0].speeds), median(rows[1].speeds));
    std::printf(
        "cold haul / the better limit: %.3f in step, %.3f moved; warm haul / read(): %.2f\n",
        median(rows[2].speeds) / limit, median(rows[3].speeds) / limit,
        median(rows[6].speeds) / median(rows[9].speeds));
  }
  std::filesystem::remove(path);
  return 0;
}
