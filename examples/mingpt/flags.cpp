#include "flags.h"

#include <iostream>

#include <CLI/CLI.hpp>

std::optional<int> read_flags(int argc, char** argv, Flags* flags) {
  CLI::App app{"Writes on from a prompt with a GPT-2 whose weights lie on GPUs, in RAM and on disk",
               "mingpt"};
  app.add_option("MODEL", flags->model,
                 "a folder with a checkpoint (sharded or not), a tokenizer and a config.json")
      ->required();
  app.add_option("--prompt", flags->prompt, "the text to go on from")->capture_default_str();
  app.add_option("--max-new-tokens", flags->max_new_tokens, "tokens to add")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--json", flags->json, "print ids, text and the logit of each new token as JSON");

  const std::string where = "Where the weights lie";
  app.add_option("--device-map", flags->device_map,
                 "auto, balanced, balanced_low_0, sequential, or a JSON file of names and devices: "
                 "{\"transformer\": \"cpu\", \"lm_head\": \"disk\"}")
      ->capture_default_str()
      ->group(where);
  app.add_option(
         "--max-memory", flags->max_memory,
         "budgets like 0=10GiB,cpu=30GiB, or a JSON object; by default what the machine has "
         "free")
      ->group(where);
  app.add_option("--offload-folder", flags->offload_folder,
                 "where weights go that are to lie on disk and that no file holds in the model's "
                 "dtype, float32")
      ->group(where);

  const std::string shape = "The model's shape (by default config.json's, else GPT-2 XL's)";
  app.add_option("--n-layer", flags->n_layer, "blocks")->group(shape);
  app.add_option("--n-head", flags->n_head, "heads of a block")->group(shape);
  app.add_option("--n-embd", flags->n_embd, "hidden size")->group(shape);
  app.add_option("--vocab-size", flags->vocab_size, "tokens that it knows")->group(shape);
  app.add_option("--n-positions", flags->n_positions, "longest context")->group(shape);

  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help
  } catch (const CLI::ParseError& error) {
    print_error(error.what(), "see 'mingpt --help'");
    return 2;
  }
}

void print_error(const char* message, const std::string& hint) {
  std::cerr << "mingpt: error: " << message << '\n';
  if (!hint.empty()) std::cerr << "  " << hint << '\n';
}
