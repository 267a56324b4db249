#pragma once

// What the cases of parallel_worker share.

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "haul/error.h"
#include "haul/torch/model.h"
#include "haul/torch/partial_state.h"

namespace haul::test {

// Ends the process, with what was wrong.
[[noreturn]] void fail(const std::string& what);
inline void expect(bool right, const std::string& what) {
  if (!right) fail(what);
}
// The message of the Error that it throws.
template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  fail("no error");
}
inline void expect_in(const std::string& text, const std::string& part) {
  expect(text.find(part) != text.npos, "'" + part + "' is not in '" + text + "'");
}

// Blocks of a user's module: batches of 1 to 17 rows in 1 to 6 chunks, errors, the end of a
// process.
void run_blocks(const PartialState& state);
void run_failing_blocks(const PartialState& state);
void die_in_a_pass();

// A model of haul's families. `write_model` makes one, of the sizes of that name; FOLDER holds it.
void write_model(const std::filesystem::path& folder, const std::string& architecture,
                 const std::string& sizes);
constexpr std::int64_t kVocabulary = 61;
// Tokens, and the padding at the end of some rows; the padding id is 0.
struct Texts {
  at::Tensor ids, attended;
};
Texts texts_of(std::int64_t rows);
// Prompts of some tokens, and ways to continue so many of them at once.
std::vector<TokenId> prompt_of(std::int64_t i);
struct Way {
  const char* name;
  GenerateOptions options;
  std::int64_t batch;
};
std::vector<Way> ways_to_generate();
// The new tokens of a task's prompts.
std::string ids_of(LoadedModel& model, const Way& way, std::int64_t task);
void run_family(const PartialState& state, const std::filesystem::path& folder);
void run_generation(const PartialState& state, const std::filesystem::path& folder);

// The same, its layers shared by the processes.
void share_layers(const PartialState& state, const std::filesystem::path& folder);
void share_generation(const PartialState& state, const std::filesystem::path& folder);
void read_own_rows(const PartialState& state, const std::filesystem::path& folder);
void refuse_to_share(const PartialState& state, const std::filesystem::path& folder);
void die_in_a_shared_pass(const PartialState& state, const std::filesystem::path& folder);

// Weights that are loaded by several processes. `write_weights` makes a checkpoint in FOLDER.
void write_weights(const std::filesystem::path& folder);
void share_weights(const PartialState& state, const std::filesystem::path& folder);
void load_own_weights(const PartialState& state, const std::filesystem::path& folder);

}  // namespace haul::test
