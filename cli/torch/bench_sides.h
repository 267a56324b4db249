#pragma once

// The two sides of `haul bench`: haul and its peer do the same work, each in a process of its own.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "haul/bytes.h"
#include "haul/tokenizer.h"

namespace haul::cli {

// What both do.
struct BenchWork {
  std::filesystem::path model;
  std::filesystem::path folder;         // for what they write; theirs alone
  std::map<std::string, Bytes> budget;  // of "0" and "cpu", the rest on disk; empty: all there is
  std::vector<std::vector<TokenId>> prompts;
  std::int64_t new_tokens = 1;
  bool on_gpu = false;
  bool cold = false;            // the model's files are not in the page cache at the start
  std::optional<Bytes> memory;  // for the whole process with its page cache; nothing: no limit
  // Of the GPU, for all that the peer has there: its budget is for weights alone. Nothing: no
  // limit.
  std::optional<Bytes> gpu_memory;
};

// Reads all files of a folder, so that the kernel keeps them.
void bring_into_page_cache(const std::filesystem::path& folder);

// The budget as the flag of `haul run` has it.
std::string budget_text(const std::map<std::string, Bytes>& budget);
// Tokens of a prompt and its answer.
std::int64_t context_of(const BenchWork& work);

struct BenchRun {
  double start = 0;         // seconds from the start of the process to the first token
  double load = 0;          // seconds
  double first_token = 0;   // seconds from the prompt, with all loaded
  double token_rate = 0;    // a second, after the first, of all prompts together
  double planned_rate = 0;  // what haul's plan said
  std::vector<std::vector<TokenId>> ids;
  core::Json tops;      // of the peer: for each prompt, for each token, the likeliest
  core::Json versions;  // of the peer

  // New tokens a second from the prompts to the end of answers of so many tokens.
  double rate_of_answers(std::int64_t tokens) const;
};

// Both throw Error(kResource) with the last words of a process that failed.
BenchRun run_haul(const BenchWork& work, const std::filesystem::path& profile);
BenchRun run_peer(const BenchWork& work, const std::string& python);

// Whether a Python has what the peer needs; else what it says instead.
std::optional<std::string> peer_is_missing(const std::string& python);

}  // namespace haul::cli
