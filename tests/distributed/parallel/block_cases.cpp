#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "haul/torch/pipeline.h"
#include "tests/distributed/parallel/parallel_worker.h"

namespace haul::test {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Named = std::map<std::string, at::Tensor>;

// Blocks that hand on a tensor, a tuple and a map.
class FourImpl : public torch::nn::Module {
 public:
  FourImpl() {
    in = register_module("in", torch::nn::Linear(6, 8));
    two = register_module("two", torch::nn::Linear(8, 8));
    three = register_module("three", torch::nn::Linear(8, 8));
    out = register_module("out", torch::nn::Linear(8, 3));
  }

  Pair second(const at::Tensor& x) { return {two(x), x.sum(-1, true)}; }
  Named third(const at::Tensor& x, const at::Tensor& sums) {
    return {{"x", three(x).relu()}, {"sums", sums.abs()}};
  }
  at::Tensor fourth(const Named& named) { return out(named.at("x")) * named.at("sums"); }
  at::Tensor all(const at::Tensor& x) {
    const auto [y, sums] = second(in(x));
    return fourth(third(y, sums));
  }

  torch::nn::Linear in{nullptr}, two{nullptr}, three{nullptr}, out{nullptr};
};
TORCH_MODULE(Four);

Four make_model() {
  torch::manual_seed(4);
  Four model;
  model->eval();
  return model;
}

PipelineBlocks blocks_of(Four& model) {
  PipelineBlocks blocks(model);
  blocks.add("in", model->in)
      .add("two", [model](const at::Tensor& x) mutable { return model->second(x); })
      .add("three", [model](const at::Tensor& x,
                            const at::Tensor& sums) mutable { return model->third(x, sums); })
      .add("out", [model](const Named& named) mutable { return model->fourth(named); });
  return blocks;
}

// What one process gives that computes chunk after chunk.
at::Tensor by_chunks(Four& model, const at::Tensor& x, std::int64_t chunks) {
  std::vector<at::Tensor> rows;
  const std::int64_t count = std::min(chunks, x.size(0));
  for (std::int64_t i = 0; i < count; ++i) {
    rows.push_back(model->all(part_for(x, i, count).items));
  }
  return at::cat(rows);
}

}  // namespace

void run_blocks(const PartialState& state) {
  Four model = make_model();
  const PipelineBlocks blocks = blocks_of(model);
  const at::NoGradGuard no_gradients;
  for (std::int64_t chunks = 1; chunks <= 6; ++chunks) {
    PipelineOptions options;
    options.num_chunks = chunks;
    options.gather_output = chunks % 2 == 0;
    Pipeline pipeline = prepare_pipeline(blocks, options);
    for (std::int64_t rows = 1; rows <= 17; ++rows) {
      const std::string what =
          std::to_string(rows) + " rows, " + std::to_string(chunks) + " chunks";
      // More dimensions from time to time.
      const at::Tensor x =
          rows % 3 == 0 ? at::randn({rows, 2 + rows % 5, 6}) : at::randn({rows, 6});
      const auto output = state.is_main_process() ? pipeline(x) : pipeline(at::Tensor());
      expect(output.has_value() == (options.gather_output || state.is_last_process()),
             "who has the output of " + what);
      const at::Tensor same = state.broadcast_object(x);
      if (!output) continue;
      expect(output->equal(by_chunks(model, same, chunks)), "the chunks of " + what);
      expect(output->allclose(model->all(same), 1e-5, 1e-6), "the whole of " + what);
    }
  }
}

void run_failing_blocks(const PartialState& state) {
  Four model = make_model();
  const std::int64_t me = state.process_index();
  for (const bool gather : {false, true}) {
    PipelineOptions options;
    options.gather_output = gather;
    options.num_chunks = 4;
    options.split_points = {"two", "three"};
    PipelineBlocks blocks(model);
    blocks.add("in", model->in)
        .add("two",
             [](const at::Tensor& x) {
               if (x.size(0) == 3) throw Error(ErrorKind::kUsage, "three rows");
               return x;
             })
        .add("three", model->three)
        .add("out", model->out);
    Pipeline pipeline = prepare_pipeline(blocks, options);
    const at::Tensor good = at::ones({8, 6});
    for (int round = 0; round < 2; ++round) {
      const auto fine = pipeline(good);
      expect(fine.has_value() == (gather || state.is_last_process()), "a pass before");
      // The first two of its chunks have three rows.
      const auto bad = [&] { pipeline(at::ones({10, 6}) * 100); };
      const bool throws = me > 0 || gather;
      if (throws) {
        expect_in(error_of(bad), "three rows");
        if (me != 1) expect_in(error_of(bad), "process 1 of the pipeline");
        if (me == 1) error_of(bad);
      } else {
        bad();
        bad();
      }
      // One that the first process cannot cut.
      const auto uneven = [&] { pipeline(at::ones({3, 6}), at::ones({4})); };
      expect_in(error_of(uneven), "3 rows and of 4");
    }
  }
  const PipelineBlocks blocks = blocks_of(model);
  const auto refused = [&](std::vector<std::string> split_points, const std::string& why) {
    PipelineOptions options;
    options.split_points = std::move(split_points);
    expect_in(error_of([&] { prepare_pipeline(blocks, options); }), why);
  };
  refused({"two"}, "2 stages for 3 processes");
  refused({"two", "five"}, "no block 'five'");
  PipelineBlocks few(model);
  few.add("in", model->in).add("out", model->out);
  expect_in(error_of([&] { prepare_pipeline(few); }), "3 stages, and the model has 2 blocks");
  PipelineBlocks wrong(model);
  wrong.add("in", model->in).add("two", model->two).add("nothing", model->out);
  expect_in(error_of([&] { prepare_pipeline(wrong); }), "'nothing'");
}

void die_in_a_pass() {
  Four model = make_model();
  PipelineBlocks blocks(model);
  blocks.add("in", model->in)
      .add("two",
           [](const at::Tensor& x) {
             if (x.size(0) == 2) std::_Exit(0);
             return x;
           })
      .add("three", model->three)
      .add("out", model->out);
  PipelineOptions options;
  options.split_points = {"two", "three"};
  options.gather_output = true;
  Pipeline pipeline = prepare_pipeline(blocks, options);
  pipeline(at::ones({9, 6}));
  expect_in(error_of([&] { pipeline(at::ones({8, 6})); }), "process");
  std::_Exit(0);
}

}  // namespace haul::test
