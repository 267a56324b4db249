#pragma once

// The command line.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

struct Flags {
  std::filesystem::path model;
  std::string prompt = "Hello, my name is";
  std::int64_t max_new_tokens = 20;
  std::string device_map = "auto";
  std::optional<std::string> max_memory;
  std::filesystem::path offload_folder;
  std::optional<std::int64_t> n_layer, n_head, n_embd, vocab_size, n_positions;
  bool json = false;
};

// The exit code, where there is nothing to do or the call is wrong.
std::optional<int> read_flags(int argc, char** argv, Flags* flags);

// "mingpt: error: …" and, where there is one, a line that says what to do.
void print_error(const char* message, const std::string& hint);
