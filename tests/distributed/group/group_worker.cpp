// One process of a group under test: group_worker CASE [FOLDER]. Ends with 0 when all it saw was
// right, else says what was not.

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include "haul/torch/partial_state.h"
#include "haul/torch/share_work.h"

namespace {

using haul::PartialState;

[[noreturn]] void fail(const std::string& what) {
  std::cerr << "WRONG: " << what << std::endl;
  std::_Exit(1);
}
void expect(bool right, const std::string& what) {
  if (!right) fail(what);
}
template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const haul::Error& error) {
    return error.what();
  }
  fail("no error");
}

// Every length, with padding and without: there and back again.
void splits(const PartialState& state) {
  for (std::int64_t total = 0; total <= 40; ++total) {
    std::vector<std::int64_t> items(static_cast<std::size_t>(total));
    std::iota(items.begin(), items.end(), 0);
    for (const bool padding : {false, true}) {
      const std::string what = std::to_string(total) + (padding ? ", padded" : "");
      const auto part = state.split_between_processes(items, padding);
      std::vector<std::string> results;
      for (const std::int64_t item : part.items)
        results.push_back("<" + std::to_string(item) + ">");
      const std::vector<std::string> all = state.gather_split(results, part.share);
      expect(all.size() == items.size(), "number of results of " + what);
      for (const std::int64_t item : items) {
        expect(all[static_cast<std::size_t>(item)] == "<" + std::to_string(item) + ">",
               "result " + std::to_string(item) + " of " + what);
      }
      const at::Tensor rows = at::arange(total * 3).view({total, 3});
      const auto mine = state.split_between_processes(rows, padding);
      expect(state.gather_split(mine.items * 2, mine.share).equal(rows * 2), "rows of " + what);
    }
  }
  // One that forgets a result: everybody hears of it, and the group goes on.
  const auto part =
      state.split_between_processes(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8});
  std::vector<std::int64_t> results = part.items;
  if (state.is_last_process()) results.pop_back();
  const std::string error = error_of([&] { state.gather_split(results, part.share); });
  expect(error.find("process " + std::to_string(state.num_processes() - 1) + " has") == 0, error);
  expect(state.gather_split(part.items, part.share).size() == 8, "after an error");
}

void collectives(const PartialState& state) {
  const std::int64_t rank = state.process_index();
  const std::int64_t world = state.num_processes();
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte,
        at::kBool, at::kComplexFloat, at::kFloat8_e4m3fn}) {
    const at::Tensor mine = at::full({2, 3}, rank % 2, at::kFloat).to(type);
    std::vector<at::Tensor> parts;
    for (std::int64_t p = 0; p < world; ++p) parts.push_back(at::full({2, 3}, p % 2, at::kFloat));
    const at::Tensor all = state.gather(mine);
    expect(all.scalar_type() == type, "dtype of a gather");
    expect(all.to(at::kFloat).equal(at::cat(parts)),
           std::string("gather of ") + c10::toString(type));
    expect(state.broadcast(mine, world - 1).to(at::kFloat).equal(parts.back()), "broadcast");
  }
  expect(state.gather(at::scalar_tensor(rank, at::kLong)).equal(at::arange(world)),
         "gather of scalars");
  expect(state.gather(at::ones({0, 2})).sizes() == at::IntArrayRef({0, 2}), "gather of nothing");
  const at::Tensor strided = at::arange(6).view({2, 3}).t();
  expect(state.gather(strided).narrow(0, 0, 3).equal(strided), "gather of what is not contiguous");

  using Nested = std::map<std::string, std::vector<at::Tensor>>;
  const Nested nested{{"a", {at::scalar_tensor(rank, at::kLong), at::ones({2})}},
                      {"b", {at::tensor({rank, rank})}}};
  const Nested all = state.gather(nested);
  expect(all.at("a")[0].equal(at::arange(world)), "nested gather");
  expect(all.at("a")[1].equal(at::ones({2 * world})), "nested gather");
  expect(all.at("b")[0].size(0) == 2 * world, "nested gather");
  const auto pair = state.broadcast(std::pair(at::tensor(rank), at::tensor({rank, 7L})), 1 % world);
  expect(pair.first.item<std::int64_t>() == 1 % world, "broadcast of a pair");

  const double sum = static_cast<double>(world * (world - 1)) / 2;
  const at::Tensor number = at::full({3}, static_cast<double>(rank));
  expect(state.reduce(number, haul::Reduction::kSum).equal(at::full({3}, sum)), "sum");
  const double mean = sum / static_cast<double>(world);
  expect(state.reduce(number).allclose(at::full({3}, mean)), "mean");
  expect(number.equal(at::full({3}, static_cast<double>(rank))), "the caller's tensor was changed");

  const at::Tensor padded = state.pad_across_processes(at::ones({2, rank + 1}), 1, -1);
  expect(padded.sizes() == at::IntArrayRef({2, world}), "padding");
  expect(padded.narrow(1, 0, rank + 1).equal(at::ones({2, rank + 1})), "padding keeps");
  expect((padded.narrow(1, rank + 1, world - rank - 1) == -1).all().item<bool>(), "padding pads");
  const at::Tensor before = state.pad_across_processes(at::ones({rank + 1}), -1, 0, true);
  expect(before.sum().item<double>() == static_cast<double>(rank + 1), "padding in front");
  expect(world == 1 || rank + 1 == world || before[0].item<double>() == 0, "padding in front");

  std::vector<std::int64_t> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  expect(state.gather_object(rank) == ranks, "objects");
  const std::string text(static_cast<std::size_t>(1000 * rank), 'x');
  const auto texts = state.gather_object(text);
  for (std::size_t p = 0; p < texts.size(); ++p) expect(texts[p].size() == 1000 * p, "texts");
  const auto lists =
      state.gather_object(std::vector<std::string>(static_cast<std::size_t>(rank), "é\n"));
  expect(lists.back() == std::vector<std::string>(static_cast<std::size_t>(world - 1), "é\n"),
         "lists");
  expect(state.broadcast_object(std::string("from ") + std::to_string(rank), world - 1) ==
             "from " + std::to_string(world - 1),
         "broadcast of an object");

  if (world == 1) return;
  const std::string shapes = error_of([&] { state.gather(at::ones({rank + 1, 2})); });
  expect(shapes.find("process 0 has Float (1, 2), process 1 has Float (2, 2)") != std::string::npos,
         shapes);
  const at::ScalarType type = rank == 0 ? at::kFloat : at::kLong;
  const std::string types = error_of([&] { state.broadcast(at::ones({2}, type)); });
  expect(types.find("process 1 has Long (2)") != std::string::npos, types);
  error_of([&] { state.pad_across_processes(rank == 0 ? at::scalar_tensor(1) : at::ones({2})); });
  error_of([&] { state.broadcast(at::ones({1}), world); });
  state.wait_for_everyone();
}

void turns(const PartialState& state, const std::filesystem::path& folder) {
  const std::filesystem::path made = folder / "made";
  state.main_process_first([&] {
    if (state.is_main_process()) {
      usleep(100'000);
      std::ofstream(made) << "by main";
    }
    expect(std::filesystem::exists(made), "not after the main process");
  });
  state.wait_for_everyone();
  bool thrown = false;
  try {
    state.main_process_first([&] {
      if (state.is_main_process()) throw std::runtime_error("in the middle");
    });
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  expect(thrown == state.is_main_process(), "who threw");
  int calls = 0;
  const auto count = [&] { ++calls; };
  state.on_main_process(count);
  state.on_last_process(count);
  state.on_process(1, count);
  state.on_local_process(0, count);
  state.on_local_main_process(count);
  state.local_main_process_first(count);
  const std::int64_t rank = state.process_index();
  const std::int64_t last = state.num_processes() - 1;
  const int expected = 1 + 3 * (rank == 0) + (rank == last) + (rank == 1);
  expect(calls == expected, "calls: " + std::to_string(calls));
  state.print("said by " + std::to_string(rank));
}

// This process's part of every length up to 40, a JSON array a line: without padding, then with it.
void table(const PartialState& state, const std::filesystem::path& folder) {
  std::ofstream out(folder / ("haul-" + std::to_string(state.process_index())));
  for (std::int64_t total = 0; total <= 40; ++total) {
    std::vector<std::int64_t> items(static_cast<std::size_t>(total));
    std::iota(items.begin(), items.end(), 0);
    for (const bool padding : {false, true}) {
      const char* between = "[";
      for (const std::int64_t item : state.split_between_processes(items, padding).items) {
        out << between << item;
        between = ", ";
      }
      out << (*between == '[' ? "[]\n" : "]\n");
    }
  }
}

// A process that ends: the others hear of it.
void death(const PartialState& state) {
  state.wait_for_everyone();
  if (state.is_last_process()) std::_Exit(0);
  const std::string error = error_of([&] {
    for (int i = 0; i < 3; ++i) state.wait_for_everyone();
  });
  expect(error.find("process " + std::to_string(state.process_index()) + " of ") == 0, error);
  std::cerr << error << std::endl;
}

// Tasks of unequal length: each done once, and given to the main process in their order.
void work(const PartialState& state, std::int64_t count) {
  haul::SharedWork shared;
  std::vector<std::int64_t> done;
  std::vector<std::string> results;
  std::int64_t told = 0;
  shared.count = count;
  shared.task = [&](std::int64_t task) {
    ::usleep(static_cast<useconds_t>(task % 3 == 0 ? 3000 : 100));
    done.push_back(task);
    return std::string(1, '\0') + std::to_string(task);
  };
  shared.result = [&](std::int64_t task, const std::string& text) {
    expect(task == static_cast<std::int64_t>(results.size()), "the order");
    results.push_back(text);
  };
  shared.progress = [&](std::int64_t tasks) {
    expect(tasks > told && tasks <= count, "progress");
    told = tasks;
  };
  const std::int64_t given = haul::share_work(state, shared);
  std::vector<int> times(static_cast<std::size_t>(count));
  for (const auto& some : state.gather_object(done)) {
    for (const std::int64_t task : some) ++times[static_cast<std::size_t>(task)];
  }
  for (const int one : times) expect(one == 1, "a task was done " + std::to_string(one) + " times");
  expect(given == (state.is_main_process() ? count : 0), "the number of results");
  for (std::size_t i = 0; i < results.size(); ++i) {
    expect(results[i] == std::string(1, '\0') + std::to_string(i), "a result");
  }
}

}  // namespace

int main(int count, char** values) {
  const std::string name = count > 1 ? values[1] : "";
  haul::PartialStateOptions options;
  options.cpu = true;
  options.timeout = std::chrono::seconds(name == "missing" ? 2 : 60);
  try {
    const PartialState state(options);
    expect(state.device() == at::kCPU, "the device");
    expect(state.backend() == (state.use_distributed() ? "gloo" : ""), "the backend");
    if (name == "splits") splits(state);
    if (name == "collectives") collectives(state);
    if (name == "turns") turns(state, values[2]);
    if (name == "table") table(state, values[2]);
    if (name == "death") {
      death(state);
      std::_Exit(0);
    }
    if (name == "work") {
      for (const std::int64_t tasks : {0, 1, 2, 7, 40}) work(state, tasks);
    }
    if (name == "again") {
      state.wait_for_everyone();
      PartialState::destroy_process_group();
    }
    if (PartialState(options).num_processes() != state.num_processes()) fail("another group");
    state.wait_for_everyone();
  } catch (const haul::Error& error) {
    std::cerr << "haul: error: " << error.what() << std::endl;
    return 3;
  }
  return 0;
}
