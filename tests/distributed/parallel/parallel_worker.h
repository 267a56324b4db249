#pragma once

// What the cases of parallel_worker share.

#include <filesystem>
#include <string>

#include "haul/error.h"
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

// A model of haul's families. `write_model` makes one; FOLDER holds it.
void write_model(const std::filesystem::path& folder, const std::string& architecture);
void run_family(const PartialState& state, const std::filesystem::path& folder);
void run_generation(const PartialState& state, const std::filesystem::path& folder);

// Weights that are loaded by several processes. `write_weights` makes a checkpoint in FOLDER.
void write_weights(const std::filesystem::path& folder);
void share_weights(const PartialState& state, const std::filesystem::path& folder);
void load_own_weights(const PartialState& state, const std::filesystem::path& folder);

}  // namespace haul::test
