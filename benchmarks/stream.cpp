// A chain of stock Linears whose weights lie elsewhere than they are used, one row at a time, so
// that bringing the weights is all there is to do.
//
//   stream make FOLDER LAYERS WIDTH DTYPE  writes the checkpoint (BF16 or F32)
//   stream run FOLDER DEVICE HOME SLOTS PASSES [cold]
//                        DEVICE cpu or cuda, HOME cpu or disk, SLOTS in MB; cold: the checkpoint is
//                        dropped from the page cache before each pass
//   stream limit FILE [whole]  O_DIRECT reads of all of it by four threads, GB/s; whole: into as
//                        much fresh memory
//   stream cost          an op that touches an offloaded weight, and one that does not, beside a
//                        plain module's
//
// `run` prints one line of JSON: seconds to load, GB/s of the passes after the first, what it
// waited, and the limit in the same process: for a GPU a pinned copy of the same bytes.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "core/base/pages.h"
#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "runtime/measure/machine.h"

namespace {

namespace nn = torch::nn;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

nn::Sequential chain(int layers, int width) {
  nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(nn::Linear(nn::LinearOptions(width, width).bias(false)));
  }
  return model;
}

void make(const std::string& folder, int layers, int width, const std::string& dtype) {
  torch::manual_seed(0);
  nn::Sequential model = chain(layers, width);
  if (dtype == "BF16") model->to(torch::kBFloat16);
  haul::save_model(model, folder, 1'000'000'000'000);
  std::ofstream(folder + "/shape") << layers << " " << width << " " << dtype;
}

void drop_from_cache(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

// Memory for a model that was not touched before.
std::byte* fresh_memory(haul::Bytes size) {
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  haul::core::prefer_huge_pages(memory, size);
  return static_cast<std::byte*>(memory);
}

// The host of a virtual machine takes free memory back, and gives it again more slowly than a disk
// reads: after this, what a load allocates is there.
void ask_host_for_memory(haul::Bytes size) {
  std::byte* const memory = fresh_memory(size);
  haul::core::bring_pages(memory, size);
  munmap(memory, size);
}

// Seconds to read all of it; without memory for all of it, each thread reads over what it had.
double read_directly(int file, std::size_t size, std::byte* memory) {
  constexpr std::size_t kPiece = 8 << 20;
  std::atomic<std::size_t> next = 0;
  const auto begin = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        void* const own = memory == nullptr ? std::aligned_alloc(4096, kPiece) : nullptr;
        for (std::size_t at = next.fetch_add(kPiece); at < size; at = next.fetch_add(kPiece)) {
          void* const to = memory == nullptr ? own : memory + at;
          if (pread(file, to, kPiece, static_cast<off_t>(at)) < 0) std::abort();
        }
        std::free(own);
      });
    }
  }
  return seconds_since(begin);
}

void limit(const std::string& path, bool whole) {
  const int file = open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  const std::size_t size = std::filesystem::file_size(path);
  const std::size_t room = size + (16 << 20);  // the last piece is asked for in full
  if (whole) ask_host_for_memory(room);
  std::byte* const memory = whole ? fresh_memory(room) : nullptr;
  std::vector<double> times;
  for (int round = 0; round < (whole ? 1 : 3); ++round) {
    times.push_back(read_directly(file, size, memory));
  }
  if (whole) munmap(memory, room);
  close(file);
  std::printf("{\"limit_gb_per_second\": %.2f}\n", static_cast<double>(size) / median(times) / 1e9);
}

void synchronize(const at::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

void run(const std::string& folder, const std::string& device_name, const std::string& home,
         int slots, int passes, bool cold) {
  int layers = 0;
  int width = 0;
  std::string dtype;
  std::ifstream(folder + "/shape") >> layers >> width >> dtype;
  const bool half = dtype == "BF16";
  const at::Device device = device_name == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const haul::Bytes weight = static_cast<haul::Bytes>(width) * width * (half ? 2 : 4);
  const double limit =
      device.is_cuda() && home == "cpu" ? haul::runtime::link_bandwidth(0, weight) / 1e9 : 0;

  if (cold) drop_from_cache(folder + "/model.safetensors");
  nn::Sequential model = [&] {
    const haul::EmptyWeights scope;
    return chain(layers, width);
  }();
  haul::LoadOptions options;
  options.main_device = device;
  options.dtype = half ? haul::Dtype::kBF16 : haul::Dtype::kF32;
  options.slots = static_cast<haul::Bytes>(slots) * 1'000'000;
  if (cold && home == "cpu") ask_host_for_memory(weight * static_cast<haul::Bytes>(layers));
  const auto load_begin = Clock::now();
  haul::load_checkpoint_in_model(model, folder, haul::DeviceMap{{"", haul::parse_device(home)}},
                                 options);
  const double load = seconds_since(load_begin);

  const c10::InferenceMode inference;
  const at::Tensor input = torch::ones(
      {1, width}, torch::TensorOptions(device).dtype(half ? torch::kBFloat16 : torch::kFloat));
  std::vector<double> times;
  for (int pass = 0; pass <= passes; ++pass) {
    if (cold) drop_from_cache(folder + "/model.safetensors");
    const auto begin = Clock::now();
    const at::Tensor output = model->forward(input);
    synchronize(device);
    if (pass > 0) times.push_back(seconds_since(begin));
  }
  const haul::DispatchReport report = haul::dispatch_report(model);
  std::printf(
      "{\"load_seconds\": %.3f, \"pass_seconds\": %.4f, \"gb_per_second\": %.2f, "
      "\"limit_gb_per_second\": %.2f, \"hits\": %llu, \"leases\": %llu, \"waits\": %llu, "
      "\"wait_seconds\": %.2f, \"unplanned\": %llu}\n",
      load, median(times), static_cast<double>(weight) * layers / median(times) / 1e9, limit,
      static_cast<unsigned long long>(report.hits), static_cast<unsigned long long>(report.leases),
      static_cast<unsigned long long>(report.waits), report.wait_seconds,
      static_cast<unsigned long long>(report.unplanned));
}

// Microseconds of one call.
template <typename Call>
double cost_of(const Call& call) {
  constexpr int kCalls = 2000;
  std::vector<double> rounds;
  for (int round = 0; round < 7; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    rounds.push_back(seconds_since(begin) / kCalls * 1e6);
  }
  return median(rounds);
}

void cost() {
  const c10::InferenceMode inference;
  nn::Linear plain(8, 8);
  nn::Linear offloaded(8, 8);
  const std::string folder = "/tmp/haul-bench-cost";
  haul::disk_offload(offloaded, folder);
  const at::Tensor x = torch::ones({1, 8});
  const double without = cost_of([&] { plain->forward(x); });
  const double with = cost_of([&] { offloaded->forward(x); });
  const double beside = cost_of([&] { plain->forward(x); });
  std::printf("{\"plain_us\": %.2f, \"offloaded_us\": %.2f, \"plain_while_dispatched_us\": %.2f}\n",
              without, with, beside);
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.size() == 5 && arguments[0] == "make") {
    make(arguments[1], std::stoi(arguments[2]), std::stoi(arguments[3]), arguments[4]);
  } else if (arguments.size() >= 6 && arguments[0] == "run") {
    run(arguments[1], arguments[2], arguments[3], std::stoi(arguments[4]), std::stoi(arguments[5]),
        arguments.size() == 7 && arguments[6] == "cold");
  } else if (arguments.size() >= 2 && arguments[0] == "limit") {
    limit(arguments[1], arguments.size() == 3 && arguments[2] == "whole");
  } else if (arguments.size() == 1 && arguments[0] == "cost") {
    cost();
  } else {
    std::fprintf(stderr,
                 "usage: stream make FOLDER LAYERS WIDTH BF16|F32 | stream limit FILE [whole] | "
                 "stream run FOLDER cpu|cuda cpu|disk SLOTS_MB PASSES [cold] | stream cost\n");
    return 2;
  }
  return 0;
}
