// A model whose layers the processes share.

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <mutex>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include "core/describe/cut.h"
#include "core/formats/checkpoint.h"
#include "haul/tensor_memory.h"
#include "haul/torch/tensor_parallel_model.h"
#include "runtime/dispatch/weight_store.h"
#include "tests/distributed/parallel/parallel_worker.h"
#include "tests/support/tolerance.h"

namespace haul::test {
namespace {

constexpr double kTerms = 64 * 3;  // of the model with the sizes "shared"

Bytes planned_kv(LoadedModel& model) {
  Bytes kv = 0;
  for (const PlanDevice& device : model.plan().devices) kv += device.kv;
  return kv;
}

// All have the same bits, and they lie near those of one process.
void compare(const PartialState& state, const at::Tensor& found, const at::Tensor& expected,
             c10::ScalarType type, const std::string& what) {
  for (const at::Tensor& one : state.gather_object(found)) {
    expect(one.equal(found), what + ": processes differ");
  }
  const double away = difference(found, expected);
  expect(away <= tolerance(type, kTerms), fmt::format("{}: {} away", what, away));
}

}  // namespace

void share_layers(const PartialState& state, const std::filesystem::path& folder) {
  const at::NoGradGuard no_gradients;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
    const auto type = dtype == Dtype::kF32 ? at::kFloat : at::kBFloat16;
    ModelOptions options;
    options.dtype = dtype;
    LoadedModel whole = load_model(folder, options);
    TensorParallelModel parallel(folder, options);
    LoadedModel& mine = parallel.model();
    expect(planned_kv(mine) * static_cast<Bytes>(state.num_processes()) == planned_kv(whole),
           "the plan's KV cache");
    for (const std::int64_t rows : {1, 2, 5}) {
      const Texts some = texts_of(rows);
      const Texts texts{state.broadcast_object(some.ids), state.broadcast_object(some.attended)};
      compare(state, mine.forward(texts.ids, texts.attended),
              whole.forward(texts.ids, texts.attended), type, fmt::format("{} rows", rows));
    }
    const at::Tensor ids = state.broadcast_object(at::randint(1, kVocabulary, {3, 7}, at::kLong));
    const at::Tensor here = mine.forward(ids);
    compare(state, here, whole.forward(ids), type, "without padding");
    // From disk, where what no file holds as it is needed is written by each for itself.
    options.placement = DeviceMap{{"", kDiskDevice}};
    options.offload_folder = folder / "offload";
    for (int round = 0; round < 2; ++round) {
      TensorParallelModel streamed(folder, options);
      expect(streamed.model().forward(ids).equal(here), "from disk");
      expect(streamed.model().report().bytes_moved > 0, "nothing was streamed");
    }
  }
}

void share_generation(const PartialState& state, const std::filesystem::path& folder) {
  LoadedModel whole = load_model(folder);
  ModelOptions options;
  options.batch = 2;
  TensorParallelModel parallel(folder, options);
  const std::vector<Way> ways = ways_to_generate();
  for (const Way& way : ways) {
    for (const std::int64_t count : {0, 3}) {
      SharedWork work;
      work.count = count;
      std::int64_t shown = 0;
      work.task = [&](std::int64_t task) { return ids_of(parallel.model(), way, task); };
      work.result = [&](std::int64_t task, const std::string& text) {
        expect(task == shown++, "the order");
        expect(text == ids_of(whole, way, task), std::string("the tokens, ") + way.name);
      };
      const std::int64_t given = parallel.run(work);
      expect(given == (state.is_main_process() ? count : 0), "the number of results");
    }
  }
  // A task that fails ends the run, and the next one works.
  SharedWork failing;
  failing.count = 5;
  failing.task = [&](std::int64_t task) -> std::string {
    parallel.model().generate(prompt_of(task), ways[0].options);
    if (task == 2) throw Error(ErrorKind::kUsage, "the third");
    return {};
  };
  failing.result = [](std::int64_t, const std::string&) {};
  for (int round = 0; round < 2; ++round) {
    if (state.is_main_process()) {
      expect_in(error_of([&] { parallel.run(failing); }), "the third");
    } else {
      parallel.run(failing);
    }
  }
}

void read_own_rows(const PartialState& state, const std::filesystem::path& folder) {
  struct Range {
    Bytes begin, end;
  };
  static std::mutex mutex;
  static std::vector<Range> reads;
  const LoadedModel whole = load_model(folder);
  runtime::disk_options().fault = [](int, Bytes offset, Bytes size) -> std::optional<int> {
    const std::lock_guard lock(mutex);
    reads.push_back({offset, offset + size});
    return std::nullopt;
  };
  TensorParallelModel parallel(folder);
  const auto count = static_cast<Bytes>(state.num_processes());
  const auto index = static_cast<Bytes>(state.process_index());
  const core::CutModel cut = core::cut_model(whole.description(), state.num_processes());
  const core::Checkpoint checkpoint = core::Checkpoint::open(folder);
  std::vector<Range> own;  // that may be read by requests
  Bytes counted = 0;
  Bytes requested = 0;
  for (const core::StoredTensor& tensor : checkpoint.tensors()) {
    const auto found = cut.cuts.find(tensor.name);
    const bool by_rows = found != cut.cuts.end() && core::runs_of(tensor.shape, found->second) == 1;
    const Bytes size = by_rows ? tensor.size / count : tensor.size;
    counted += size;
    if (found != cut.cuts.end() && !by_rows) continue;  // read whole, through the map
    const Bytes begin = tensor.offset + (by_rows ? index * size : 0);
    own.push_back({begin, begin + size});
    if (size >= kDirectSize) requested += size;
  }
  expect(parallel.model().bytes_read() == counted, "the bytes that were counted");
  expect(counted < whole.bytes_read(), "a process read everything");
  expect(requested > 0, "no weight is large enough");
  Bytes read = 0;
  for (const Range& range : reads) {
    bool inside = false;
    for (const Range& allowed : own) {
      inside |= range.begin + kReadSlack >= allowed.begin && range.end <= allowed.end + kReadSlack;
    }
    expect(inside, "a read of another process's rows at " + std::to_string(range.begin));
    read += range.end - range.begin;
  }
  expect(read >= requested, "too little was read");
}

void refuse_to_share(const PartialState& state, const std::filesystem::path& folder) {
  const std::string error = error_of([&] { TensorParallelModel parallel(folder); });
  expect_in(error, fmt::format("{} processes cannot share the 4 heads, 2 kv heads",
                               state.num_processes()));
}

void die_in_a_shared_pass(const PartialState& state, const std::filesystem::path& folder) {
  TensorParallelModel parallel(folder);
  SharedWork work;
  work.count = 1000;
  work.task = [&](std::int64_t task) { return ids_of(parallel.model(), {"", {}, 1}, task); };
  work.result = [](std::int64_t, const std::string&) {};
  if (state.is_last_process()) {
    std::signal(SIGALRM, [](int) { std::_Exit(0); });
    ::ualarm(300'000, 0);
  }
  expect_in(error_of([&] { parallel.run(work); }), "failed");
  std::_Exit(0);  // the group is of no more use
}

}  // namespace haul::test
