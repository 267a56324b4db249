#include "runtime/measure/machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sum.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "core/base/file.h"
#include "haul/error.h"
#include "kernels/attend.h"
#include "kernels/host_rows.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "runtime/dispatch/split_linear.h"
#include "runtime/tiers/disk_reader.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/gpu_graph.h"
#include "runtime/tiers/host_work.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr Bytes kPiece = 64 * kMiB;
constexpr Bytes kHost = 1 * kGiB;  // beyond every cache
// Of a layer that is large.
constexpr std::int64_t kWidth = 4096;
constexpr std::int64_t kInner = 14336;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The middle of some rounds, after one that does not count.
template <typename Work>
double median_seconds(Work work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = Clock::now();
    work();
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  return times[kRounds / 2];
}

std::unique_ptr<Slab> host_memory(Ledger& ledger, Bytes size, bool pinned) {
  auto slab = std::make_unique<Slab>(c10::Device(c10::kCPU), size,
                                     ledger.reserve(Tag::kStaging, size), pinned);
  std::memset(slab->data(), 0, size);  // else all pages are one
  return slab;
}

// What the CPU multiplies for a GPU, in the portions that layers of a model have, each when the GPU
// has come to it, and with as much for the GPU to do between them.
class HelpedLayers {
 public:
  HelpedLayers(int gpu, const Slab& weights, Ledger& ledger)
      : gpu_(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)),
        vectors_(host_memory(ledger, kInner * sizeof(float), true)),
        products_(host_memory(ledger, 2 * kInner * sizeof(c10::BFloat16), true)),
        norm_(at::ones({kWidth}, at::TensorOptions(gpu_).dtype(at::kBFloat16))),
        work_(gpu) {
    for (Bytes at = 0;;) {
      for (const auto& [width, rows] : kPortions) {
        const auto size = static_cast<Bytes>(width * rows) * sizeof(c10::BFloat16);
        if (at + size > weights.size()) return;
        const kernels::HostRows matrix{c10::ScalarType::BFloat16, weights.data() + at, width, rows,
                                       products_->data()};
        portions_.emplace_back(std::vector{matrix}, reinterpret_cast<float*>(vectors_->data()), 1);
        at += size;
        bytes_ += size;
      }
    }
  }

  void run() {
    at::Tensor to_cpu = as_gpu_tensor(vectors_->data(), gpu_, at::kFloat, 1, kWidth);
    const at::Tensor products = as_gpu_tensor(products_->data(), gpu_, at::kBFloat16, 1, kWidth);
    at::Tensor x = norm_.view({1, kWidth});
    for (const kernels::HostProducts& portion : portions_) {
      const at::Tensor normed = kernels::rms_norm(x, norm_, 1e-5);
      at::mul_out(to_cpu, normed, at::scalar_tensor(1));
      work_.begin();
      work_.finish(portion.pieces(), [&](std::size_t piece) { portion.multiply(piece); });
      const at::Tensor both = at::cat({normed, products}, 1);
      x = at::silu(both.narrow(1, 0, kWidth)).mul_(both.narrow(1, kWidth, kWidth)).add_(x);
    }
    rest_until(point_of_current_stream(gpu_.index()));
  }
  Bytes bytes() const { return bytes_; }

 private:
  // Of queries, keys and values; of what comes behind attention; of the two of a gate; of the last:
  // widths, and rows that are the CPU's.
  static constexpr std::array<std::pair<std::int64_t, std::int64_t>, 4> kPortions = {
      {{kWidth, kWidth * 9 / 10},
       {kWidth, kWidth * 6 / 10},
       {kWidth, kInner * 12 / 10},
       {kInner, kWidth * 6 / 10}}};

  c10::Device gpu_;
  std::unique_ptr<Slab> vectors_;
  std::unique_ptr<Slab> products_;
  at::Tensor norm_;
  std::vector<kernels::HostProducts> portions_;
  Bytes bytes_ = 0;
  HostWork work_;  // last: its end waits for work that uses the others
};

double operations(c10::Device device, c10::ScalarType type, std::int64_t size) {
  const auto options = at::TensorOptions().device(device).dtype(type);
  const at::Tensor a = at::ones({size, size}, options);
  const double seconds = median_seconds([&] {
    const at::Tensor product = at::mm(a, a);
    if (device.is_cuda()) wait_for(point_of_current_stream(device.index()));
  });
  return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) /
         seconds;
}

// The weights of a layer as many models have it, in half precision, and some tokens to look at.
class MeasuredLayer {
 public:
  MeasuredLayer(std::int64_t width, std::int64_t inner, const at::TensorOptions& options)
      : heads_(width / kHead),
        norm_(at::ones({width}, options)),
        queries_(at::ones({width, width}, options)),
        keys_(at::ones({width / 4, width}, options)),
        values_(at::ones({width / 4, width}, options)),
        back_(at::ones({width, width}, options)),
        gate_(at::ones({inner, width}, options)),
        up_(at::ones({inner, width}, options)),
        down_(at::ones({width, inner}, options)),
        seen_(at::ones({1, heads_ / 4, 64, kHead}, options)) {}

  at::Tensor forward(const at::Tensor& x) const {
    const std::array<kernels::LinearWeights, 3> parts = {
        {{queries_, {}}, {keys_, {}}, {values_, {}}}};
    const at::Tensor queries =
        kernels::linears(kernels::rms_norm(x, norm_, 1e-5), parts)[0].view({1, 1, heads_, kHead});
    const at::Tensor attended =
        kernels::attend(queries.transpose(1, 2), seen_, seen_, {}, 1 / std::sqrt(kHead));
    const at::Tensor mixed = kernels::linear(attended[0], back_, {}, x);
    const at::Tensor normed = kernels::rms_norm(mixed, norm_, 1e-5);
    const at::Tensor both =
        kernels::gated_pair(normed, {gate_, {}}, {up_, {}}, kernels::Curve::kSilu);
    return kernels::linear(both, down_, {}, mixed);
  }
  double bytes() const {
    return static_cast<double>(2 * queries_.nbytes() + 2 * keys_.nbytes() + 3 * gate_.nbytes());
  }

  // Modules with weights, less what is left out here: the turning of positions.
  static constexpr double kCalls = 8;
  static constexpr std::int64_t kHead = 64;

 private:
  std::int64_t heads_;
  at::Tensor norm_, queries_, keys_, values_, back_, gate_, up_, down_, seen_;
};

// Seconds that a layer takes for a token, as it is in decoding, and the bytes of its weights.
struct LayerTime {
  double seconds;
  double bytes;
};

LayerTime layer_time(c10::Device device, int count, std::int64_t width, std::int64_t inner) {
  const auto options = at::TensorOptions().device(device).dtype(at::kBFloat16);
  std::vector<MeasuredLayer> layers;
  layers.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) layers.emplace_back(width, inner, options);
  const at::Tensor first = at::ones({1, width}, options);
  at::Tensor x;
  const auto work = [&] {
    x = first;
    for (const MeasuredLayer& layer : layers) x = layer.forward(x);
  };
  const double bytes = layers.front().bytes();
  if (!device.is_cuda()) return {median_seconds(work) / count, bytes};
  work();
  GpuGraph graph(device.index());
  graph.record(work);
  const double seconds = median_seconds([&] {
    graph.replay();
    wait_for(point_of_current_stream(device.index()));
  });
  return {seconds / count, bytes};
}

// What layers take by their bytes, and beside those: by a large one and a small one.
struct LayerSpeed {
  double bandwidth;
  double call;
};

LayerSpeed layer_speed(c10::Device device) {
  const LayerTime large = layer_time(device, device.is_cuda() ? 4 : 2, kWidth, kInner);
  // So many that few caches hold them.
  const LayerTime small = layer_time(device, 32, kWidth / 8, kInner / 8);
  if (small.seconds >= large.seconds) return {large.bytes / large.seconds, 0};
  const double bandwidth = (large.bytes - small.bytes) / (large.seconds - small.seconds);
  const double call = (small.seconds - small.bytes / bandwidth) / MeasuredLayer::kCalls;
  return {bandwidth, std::max(0.0, call)};
}

// What memory gives at once; summed by word, so that no sum waits for another.
using Line = std::array<std::uint64_t, 8>;

Line sum(std::span<const Line> lines) {
  constexpr std::size_t kAhead = 32;
  Line result{};
  for (const Line& line : lines) {
    __builtin_prefetch(&line + kAhead);
    for (std::size_t i = 0; i < line.size(); ++i) result[i] += line[i];
  }
  return result;
}

// Copies to a GPU for as long as it lives.
class BusyLink {
 public:
  BusyLink(int gpu, Ledger& ledger)
      : host_(host_memory(ledger, 4 * kPiece, true)),
        device_(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)), kPiece,
                ledger.reserve(Tag::kSlots, kPiece)),
        copies_(gpu),
        thread_([this](const std::stop_token& stop) {
          std::deque<GpuPoint> under_way;
          for (Bytes i = 0; !stop.stop_requested(); i = (i + 1) % 4) {
            copies_.copy(device_.data(), host_->data() + i * kPiece, kPiece);
            under_way.push_back(copies_.point());
            if (under_way.size() < 4) continue;
            rest_until(under_way.front());
            under_way.pop_front();
          }
        }) {}

 private:
  std::unique_ptr<Slab> host_;
  Slab device_;
  CopyStream copies_;
  std::jthread thread_;
};

// Nothing where a driver is too old for it.
std::optional<double> help_bandwidth(int gpu, const Slab& weights, Ledger& ledger) {
  try {
    HelpedLayers helped(gpu, weights, ledger);
    const BusyLink link(gpu, ledger);
    return static_cast<double>(helped.bytes()) / median_seconds([&] { helped.run(); });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    return std::nullopt;
  }
}

// Seconds from a GPU to the CPU and back, for what passes between layers; half of it is one hop.
double hop_seconds(c10::Device gpu) {
  const at::Tensor x = at::ones({1, kWidth}, at::TensorOptions().device(gpu));
  return median_seconds([&] {
           const at::Tensor back = x.to(c10::kCPU).to(gpu);
           wait_for(point_of_current_stream(gpu.index()));
         }) /
         2;
}

void write_file(const fs::path& path, const Slab& bytes) {
  core::write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

double disk_bandwidth(const fs::path& folder, Slab& memory) {
  struct Removed {
    fs::path path;
    ~Removed() {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  } const file{folder / fmt::format("haul-measure-{}", ::getpid())};
  write_file(file.path, memory);
  std::vector<double> rates;
  for (int round = 0; round < 3; ++round) {
    const int fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    DiskReader reader;
    const int opened = reader.open(file.path);
    const Bytes size = memory.size() - 2 * kReadSlack;
    const auto begin = Clock::now();
    reader.read_now(opened, 0, size, memory.data() + kReadSlack);
    rates.push_back(static_cast<double>(size) / seconds_since(begin));
  }
  std::sort(rates.begin(), rates.end());
  return rates[1];
}

}  // namespace

double read_bandwidth(c10::Device device) {
  const c10::InferenceMode no_gradients;
  if (device.is_cuda()) {
    const at::Tensor words =
        at::ones({static_cast<std::int64_t>(kHost / sizeof(float))}, at::TensorOptions(device));
    return static_cast<double>(kHost) / median_seconds([&] {
             words.sum();
             wait_for(point_of_current_stream(device.index()));
           });
  }
  Ledger ledger("measure", std::nullopt);
  const std::unique_ptr<Slab> memory = host_memory(ledger, kHost, false);
  const std::span lines(reinterpret_cast<const Line*>(memory->data()), kHost / sizeof(Line));
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<Line> sums(threads);
  const double seconds = median_seconds([&] {
    std::vector<std::jthread> running;
    for (std::size_t t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        const std::size_t begin = lines.size() * t / threads;
        sums[t] = sum(lines.subspan(begin, lines.size() * (t + 1) / threads - begin));
      });
    }
  });
  return static_cast<double>(kHost) / seconds;
}

double link_bandwidth(int gpu, Bytes piece) {
  constexpr Bytes kPieces = 8;
  Ledger ledger("measure", std::nullopt);
  const std::unique_ptr<Slab> host = host_memory(ledger, piece * kPieces, true);
  const Slab device(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)), piece * 2,
                    ledger.reserve(Tag::kSlots, piece * 2));
  CopyStream copies(gpu);
  const double seconds = median_seconds([&] {
    for (Bytes i = 0; i < kPieces; ++i) {
      copies.copy(device.data() + piece * (i % 2), host->data() + piece * i, piece);
    }
    wait_for(copies.point());
  });
  return static_cast<double>(piece * kPieces) / seconds;
}

Profile measure_machine(const MeasureOptions& options) {
  const c10::InferenceMode no_gradients;
  Profile profile;
  profile.measured = true;
  Ledger ledger("measure", std::nullopt);
  const std::unique_ptr<Slab> host = host_memory(ledger, kHost, false);
  options.on_step("RAM");
  const LayerSpeed cpu = layer_speed(c10::kCPU);
  profile.ram_bandwidth = cpu.bandwidth;
  profile.cpu_call = cpu.call;
  options.on_step("CPU");
  profile.cpu_operations = operations(c10::kCPU, at::kFloat, 1024);
  for (const Gpu& found : gpus()) {
    options.on_step(fmt::format("GPU {}", found.index));
    const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(found.index));
    GpuProfile gpu;
    const LayerSpeed speed = layer_speed(device);
    gpu.memory_bandwidth = speed.bandwidth;
    gpu.call = speed.call;
    gpu.operations = operations(device, at::kBFloat16, 8192);
    gpu.link_bandwidth = link_bandwidth(found.index, kPiece);
    profile.gpus[found.index] = gpu;
    if (found.index > 0) continue;
    profile.gpu = gpu;
    profile.hop = hop_seconds(device);
    profile.help_bandwidth =
        help_bandwidth(found.index, *host, ledger).value_or(profile.help_bandwidth);
  }
  options.on_step("disk");
  profile.disk_bandwidth = disk_bandwidth(options.folder, *host);
  return profile;
}

}  // namespace haul::runtime
