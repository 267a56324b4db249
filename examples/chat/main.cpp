// A conversation with a model, a line a turn: chat MODEL

#include <iostream>
#include <string>

#include <haul/error.h>
#include <haul/torch/model.h>
#include <nlohmann/json.hpp>

int main(int argc, char** argv) try {
  if (argc != 2) throw haul::Error(haul::ErrorKind::kUsage, "usage: chat MODEL");
  haul::LoadedModel model = haul::load_model(argv[1]);
  const haul::Tokenizer& tokenizer = model.tokenizer();
  haul::ChatOptions turn;
  turn.add_generation_prompt = true;

  auto messages = nlohmann::ordered_json::array();
  for (std::string line; std::cout << "> " && std::getline(std::cin, line);) {
    messages.push_back({{"role", "user"}, {"content", line}});
    const std::string prompt = tokenizer.apply_chat(messages.dump(), turn);
    const haul::Generated answer =
        model.generate(tokenizer.encode_ids(prompt, {false, false}), {},
                       [](std::string_view text) { std::cout << text << std::flush; });
    std::cout << '\n';
    messages.push_back({{"role", "assistant"}, {"content", answer.text}});
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
