#include <filesystem>
#include <fstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <torch/utils.h>

#include "core/describe/describe.h"
#include "haul/torch/model.h"
#include "haul/torch/pipeline.h"
#include "haul/torch/pipelined_model.h"
#include "models/families/model.h"
#include "tests/distributed/parallel/parallel_worker.h"

namespace haul::test {
namespace {

std::string type_of(const std::string& architecture) {
  for (const char* const type : {"bert", "bloom", "gpt2", "llama", "mistral", "qwen2", "qwen3"}) {
    std::string lower = architecture;
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    if (lower.starts_with(type)) return type;
  }
  fail("no type for " + architecture);
}

std::string sizes_of(const std::string& name) {
  // Which 2, 3 and 4 processes can share, and with every bias.
  if (name == "shared") {
    return R"("hidden_size": 48, "n_embd": 48, "num_hidden_layers": 3, "n_layer": 3,
              "num_attention_heads": 24, "n_head": 24, "head_dim": 8, "num_key_value_heads": 12,
              "intermediate_size": 96, "attention_bias": true, "mlp_bias": true)";
  }
  // Whose weights are large enough to be read by requests of their own.
  if (name == "large") {
    return R"("hidden_size": 1024, "n_embd": 1024, "num_hidden_layers": 1, "n_layer": 1,
              "num_attention_heads": 8, "n_head": 8, "num_key_value_heads": 8,
              "intermediate_size": 2048)";
  }
  return R"("hidden_size": 32, "n_embd": 32, "num_hidden_layers": 5, "n_layer": 5,
            "num_attention_heads": 4, "n_head": 4, "head_dim": 8, "num_key_value_heads": 2,
            "intermediate_size": 48)";
}

}  // namespace

Texts texts_of(std::int64_t rows) {
  Texts texts{at::randint(1, kVocabulary, {rows, 5 + rows % 4}, at::kLong), {}};
  texts.attended = at::ones(texts.ids.sizes(), at::kBool);
  for (std::int64_t row = 1; row < rows; row += 2) {
    texts.ids[row].narrow(0, 4, texts.ids.size(1) - 4).fill_(0);
    texts.attended[row].narrow(0, 4, texts.ids.size(1) - 4).fill_(false);
  }
  return texts;
}

std::vector<TokenId> prompt_of(std::int64_t i) {
  std::vector<TokenId> ids;
  for (std::int64_t k = 0; k < 2 + i % 5; ++k)
    ids.push_back(static_cast<TokenId>(1 + (7 * i + k) % 60));
  return ids;
}

std::vector<Way> ways_to_generate() {
  std::vector<Way> ways(3);
  ways[0] = {"greedy", {}, 2};
  ways[0].options.temperature = 0;
  ways[1] = {"by chance", {}, 1};
  ways[1].options.temperature = 0.8;
  ways[2] = {"beams", {}, 1};
  ways[2].options.num_beams = 3;
  ways[2].options.temperature = 0;
  for (Way& way : ways) way.options.max_new_tokens = 12;
  return ways;
}

std::string ids_of(LoadedModel& model, const Way& way, std::int64_t task) {
  std::vector<std::vector<TokenId>> prompts;
  for (std::int64_t i = 0; i < way.batch; ++i) prompts.push_back(prompt_of(task * way.batch + i));
  std::string text;
  for (const Generated& one : model.generate_batch(prompts, way.options)) {
    for (const TokenId id : one.ids) text += std::to_string(id) + " ";
  }
  return text;
}

void write_model(const std::filesystem::path& folder, const std::string& architecture,
                 const std::string& sizes) {
  const std::string config = R"({"architectures": [")" + architecture + R"("], "model_type": ")" +
                             type_of(architecture) + R"(", )" + sizes_of(sizes) + R"(,
          "vocab_size": 61, "max_position_embeddings": 32,
          "n_positions": 32, "sliding_window": 4, "pad_token_id": 0, "num_labels": 3,
          "id2label": {"0": "a", "1": "b", "2": "c"}, "dtype": "float32"})";
  const core::Json json = core::parse_json(config, "config.json");
  torch::manual_seed(6);
  const auto model = models::make_model(core::ConfigReader(json, "config.json"),
                                        core::describe_config(json, "config.json"));
  {
    const at::NoGradGuard no_gradients;
    for (at::Tensor& weight : model->parameters()) weight.normal_(0, 0.2);
  }
  save_model(ModelRef(*model), folder);
  std::ofstream(folder / "config.json") << config;
}

void run_family(const PartialState& state, const std::filesystem::path& folder) {
  LoadedModel whole = load_model(folder);
  const at::NoGradGuard no_gradients;
  Bytes all = 0;
  for (const NamedTensor& tensor : all_tensors(whole.description())) {
    all += byte_count(tensor.dtype, tensor.shape);
  }
  // The grid in full once.
  const bool all_sizes = whole.description().architecture == "GPT2ForSequenceClassification";
  for (std::int64_t chunks = 1; chunks <= 6; chunks += all_sizes ? 1 : 2) {
    PipelineOptions options;
    options.num_chunks = chunks;
    options.gather_output = true;
    Pipeline pipeline = prepare_pipeline(folder.string(), options);
    if (state.use_distributed()) expect(pipeline.bytes_read() < all, "a stage read everything");
    std::size_t layers = 0;
    for (const auto& some : state.gather_object(pipeline.blocks())) layers += some.size();
    expect(layers == 5, "the layers of all stages");
    for (std::int64_t rows = 1; rows <= 17; rows += all_sizes ? 1 : 4) {
      const std::string what =
          std::to_string(rows) + " rows, " + std::to_string(chunks) + " chunks";
      const Texts mine = texts_of(rows);
      const Texts texts{state.broadcast_object(mine.ids), state.broadcast_object(mine.attended)};
      const auto output = pipeline(texts.ids, texts.attended);
      std::vector<at::Tensor> parts;
      const std::int64_t count = std::min(chunks, rows);
      for (std::int64_t i = 0; i < count; ++i) {
        parts.push_back(whole.forward(part_for(texts.ids, i, count).items,
                                      part_for(texts.attended, i, count).items));
      }
      expect(output->equal(at::cat(parts)), "the chunks of " + what);
      expect(output->allclose(whole.forward(texts.ids, texts.attended), 1e-4, 1e-5),
             "the whole of " + what);
    }
    const at::Tensor alone = state.broadcast_object(at::randint(1, kVocabulary, {3, 7}, at::kLong));
    expect(pipeline(alone)->allclose(whole.forward(alone), 1e-4, 1e-5), "without padding");
    expect_in(error_of([&] {
                pipeline(at::ones({2, 3}, at::kLong) * 99);
              }),
              "token 99 is not in the vocabulary");
  }
}

void run_generation(const PartialState& state, const std::filesystem::path& folder) {
  LoadedModel whole = load_model(folder);
  ModelOptions options;
  options.batch = 2;
  PipelinedModel pipelined(folder, options);
  expect(!state.use_distributed() || pipelined.model().bytes_read() < whole.bytes_read(),
         "a stage read everything");
  const std::vector<Way> ways = ways_to_generate();
  for (const Way& way : ways) {
    for (const std::int64_t count : {0, 1, 2, 9}) {
      SharedWork work;
      work.count = count;
      std::int64_t shown = 0;
      work.task = [&](std::int64_t task) { return ids_of(pipelined.model(), way, task); };
      work.result = [&](std::int64_t task, const std::string& text) {
        expect(task == shown++, "the order");
        expect(text == ids_of(whole, way, task), std::string("the tokens, ") + way.name);
      };
      const std::int64_t given = pipelined.run(work);
      expect(given == (state.is_main_process() ? count : 0), "the number of results");
    }
  }
  // A task that fails ends the others, and the next run works.
  SharedWork failing;
  failing.count = 5;
  failing.task = [&](std::int64_t task) -> std::string {
    pipelined.model().generate(prompt_of(task), ways[0].options);
    if (task == 2) throw Error(ErrorKind::kUsage, "the third");
    return {};
  };
  failing.result = [](std::int64_t, const std::string&) {};
  for (int round = 0; round < 2; ++round) {
    if (state.is_main_process()) {
      expect_in(error_of([&] { pipelined.run(failing); }), "the third");
    } else {
      pipelined.run(failing);
    }
  }
}

}  // namespace haul::test
