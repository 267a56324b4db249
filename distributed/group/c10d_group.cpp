#include "distributed/group/c10d_group.h"

#include <atomic>
#include <cstdlib>
#include <deque>
#include <exception>
#include <string_view>
#include <type_traits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "haul/error.h"

namespace haul::distributed {
namespace {

class C10dGroup final : public Group {
 public:
  C10dGroup(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store,
            const at::Device& wire)
      : store_(std::move(store)),
        backend_(std::move(backend)),
        name_(backend_->getBackendName()),
        wire_(wire) {}

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }
  const std::string& backend() const override { return name_; }

  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    std::vector<at::Tensor> input{bytes_of(tensor)};
    std::vector<std::vector<at::Tensor>> output(1);
    for (int i = 0; i < size(); ++i) output[0].push_back(at::empty_like(input[0]));
    finish("a gather", [&] { return backend_->allgather(output, input); });
    std::vector<at::Tensor> result;
    result.reserve(output[0].size());
    for (const at::Tensor& bytes : output[0]) result.push_back(as(bytes, tensor));
    return result;
  }

  at::Tensor broadcast(const at::Tensor& tensor, int from) override {
    std::vector<at::Tensor> bytes{bytes_of(tensor).clone()};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    finish(fmt::format("a broadcast from process {}", from),
           [&] { return backend_->broadcast(bytes, options); });
    return as(bytes[0], tensor);
  }

  at::Tensor sum(const at::Tensor& tensor) override {
    std::vector<at::Tensor> sums{tensor.to(wire_).contiguous().clone()};
    finish("a sum", [&] { return backend_->allreduce(sums); });
    return sums[0].to(tensor.device());
  }

  void barrier() override {
    finish("waiting for everyone", [&] { return backend_->barrier(); });
  }

  void send(const at::Tensor& tensor, int to) override {
    std::vector<at::Tensor> bytes{bytes_of(tensor)};
    const std::string doing = fmt::format("sending to process {}", to);
    try {
      sends_.push_back({backend_->send(bytes, to, 0), bytes[0], doing});
    } catch (...) {
      rethrow(rank(), size(), doing);
    }
    while (sends_.size() > kMostSends) finish_send();
  }
  void receive(const at::Tensor& tensor, int from) override { begin_receive(tensor, from)(); }
  std::function<void()> begin_receive(const at::Tensor& tensor, int from) override {
    std::vector<at::Tensor> bytes{bytes_of(tensor)};  // the same memory, unless it lies elsewhere
    const std::string doing = fmt::format("receiving from process {}", from);
    const auto start = [this, from](std::vector<at::Tensor>& to) {
      return backend_->recv(to, from, 0);
    };
    c10::intrusive_ptr<c10d::Work> work;
    // On a GPU what is begun keeps what comes after it waiting.
    if (wire_.is_cpu()) {
      try {
        work = start(bytes);
      } catch (...) {
        rethrow(rank(), size(), doing);
      }
    }
    return [this, tensor, bytes, doing, start, work]() mutable {
      finish(doing, [&] { return work ? work : start(bytes); });
      if (!bytes[0].is_alias_of(tensor)) tensor.copy_(as(bytes[0], tensor));
    };
  }
  void finish_sends() override {
    while (!sends_.empty()) finish_send();
  }

  std::int64_t add(const std::string& counter, std::int64_t number) override {
    return with_store([&] { return store_->add(counter, number); });
  }
  void post(const std::string& name, const std::string& text) override {
    with_store([&] { store_->set(name, std::vector<std::uint8_t>(text.begin(), text.end())); });
  }
  std::optional<std::string> take(const std::string& name) override {
    return with_store([&]() -> std::optional<std::string> {
      if (!store_->check({name})) return std::nullopt;
      const std::vector<std::uint8_t> text = store_->get(name);
      store_->deleteKey(name);
      return std::string(text.begin(), text.end());
    });
  }

 private:
  // Backends know few dtypes, but all of them bytes.
  at::Tensor bytes_of(const at::Tensor& tensor) const {
    return tensor.to(wire_).contiguous().view({-1}).view(at::kByte);
  }
  static at::Tensor as(const at::Tensor& bytes, const at::Tensor& like) {
    return bytes.to(like.device()).view(like.scalar_type()).view(like.sizes());
  }

  template <typename Start>
  void finish(const std::string& doing, const Start& start) {
    try {
      start()->wait();
    } catch (...) {
      rethrow(rank(), size(), doing);
    }
  }

  // The oldest.
  void finish_send() {
    const Send oldest = std::move(sends_.front());
    sends_.pop_front();
    finish(oldest.doing, [&] { return oldest.work; });
  }

  template <typename Work>
  std::invoke_result_t<const Work&> with_store(const Work& work) {
    try {
      return work();
    } catch (...) {
      rethrow(rank(), size(), "talking to process 0");
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;  // ends after the backend
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::string name_;
  at::Device wire_;

  struct Send {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor bytes;  // held until they are gone
    std::string doing;
  };
  static constexpr std::size_t kMostSends = 64;
  std::deque<Send> sends_;
};

// The first line of what went wrong, without torch's stack.
std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

void rethrow(int rank, int size, const std::string& doing) {
  std::string why;
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    why = first_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    why = first_line(error.what());
  }
  throw Error(ErrorKind::kResource,
              fmt::format("process {} of {}: {} failed: {}", rank, size, doing, why),
              "another process may have ended, or may not have come to the same call");
}

c10::intrusive_ptr<c10d::Store> make_store(const GroupPlace& place) {
  const core::RankEnvironment& environment = place.environment;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.master_port);
  // torchrun's agent keeps a store for its processes.
  const char* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  options.isServer =
      environment.rank == 0 && (agent == nullptr || std::string_view(agent) != "True");
  options.numWorkers = static_cast<std::size_t>(environment.world);
  options.waitWorkers = false;
  options.multiTenant = true;  // a later group of this process listens at the same place
  options.timeout = place.timeout;
  try {
    // Names that no earlier group, and no earlier attempt of a launcher, has used.
    static std::atomic<int> groups = 0;
    const char* const attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("haul/{}/{}", attempt == nullptr ? "0" : attempt, groups++),
        c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options));
  } catch (...) {
    rethrow(environment.rank, environment.world,
            fmt::format("meeting the others at {}:{}", environment.master_addr,
                        environment.master_port));
  }
}

std::unique_ptr<Group> make_c10d_group(const c10::intrusive_ptr<c10d::Backend>& backend,
                                       const c10::intrusive_ptr<c10d::Store>& store,
                                       const at::Device& wire) {
  return std::make_unique<C10dGroup>(backend, store, wire);
}

}  // namespace haul::distributed
