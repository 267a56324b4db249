#include "cli/torch/run_task.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/torch/run_output.h"
#include "core/base/json.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

constexpr std::array<std::pair<const char*, Task>, 4> kTasks{{{"generate", Task::kGenerate},
                                                              {"embed", Task::kEmbed},
                                                              {"classify", Task::kClassify},
                                                              {"fill-mask", Task::kFillMask}}};

void embed(LoadedModel& model, const std::string& text, const TaskInput& input) {
  const std::vector<float> vector = input.ids.empty() ? model.embed(text) : model.embed(input.ids);
  if (input.json) {
    fmt::print("{}\n", core::Json{{"embedding", vector}}.dump());
  } else {
    fmt::print("{}\n", fmt::join(vector, " "));
  }
}

void classify(LoadedModel& model, const std::string& text, const TaskInput& input) {
  std::vector<Label> labels = input.ids.empty() ? model.classify(text) : model.classify(input.ids);
  if (!input.labels.empty() && input.labels.size() != labels.size()) {
    throw Error(ErrorKind::kUsage, fmt::format("--labels names {} labels, and the model has {}",
                                               input.labels.size(), labels.size()));
  }
  core::Json json = core::Json::array();
  for (Label& label : labels) {
    if (!input.labels.empty()) label.name = input.labels[static_cast<std::size_t>(label.index)];
    json.push_back({{"label", label.name}, {"score", label.score}});
  }
  if (input.json) {
    fmt::print("{}\n", core::Json{{"labels", json}}.dump());
    return;
  }
  for (const Label& label : labels) fmt::print("{:.4f}  {}\n", label.score, label.name);
}

void fill_mask(LoadedModel& model, const std::string& text, const TaskInput& input) {
  const auto masks = input.ids.empty() ? model.fill_mask(text) : model.fill_mask(input.ids);
  core::Json json = core::Json::array();
  for (const std::vector<Word>& words : masks) {
    core::Json list = core::Json::array();
    for (const Word& word : words) {
      list.push_back({{"word", word.text}, {"id", word.id}, {"score", word.score}});
    }
    json.push_back(std::move(list));
  }
  if (input.json) {
    fmt::print("{}\n", core::Json{{"masks", json}}.dump());
    return;
  }
  for (std::size_t i = 0; i < masks.size(); ++i) {
    if (masks.size() > 1) fmt::print("{}mask {}\n", i > 0 ? "\n" : "", i + 1);
    for (const Word& word : masks[i]) fmt::print("{:.4f}  {}\n", word.score, word.text);
  }
}

void run_one(LoadedModel& model, Task task, const std::string& text, const TaskInput& input) {
  if (task == Task::kEmbed) embed(model, text, input);
  if (task == Task::kClassify) classify(model, text, input);
  if (task == Task::kFillMask) fill_mask(model, text, input);
}

}  // namespace

Task parse_task(const std::string& name) {
  for (const auto& [known, task] : kTasks) {
    if (name == known) return task;
  }
  throw Error(ErrorKind::kUsage, fmt::format("there is no task '{}'", name),
              "the tasks are generate, embed, classify and fill-mask");
}

void run_task(LoadedModel& model, Task task, const TaskInput& input) {
  const auto start = std::chrono::steady_clock::now();
  if (!input.ids.empty()) run_one(model, task, {}, input);
  for (std::size_t i = 0; i < input.texts.size(); ++i) {
    const Prompt& prompt = input.texts[i];
    if (i > 0 && !input.json && task != Task::kEmbed) fmt::print("\n");
    try {
      if (!prompt.messages.is_null()) {
        throw Error(ErrorKind::kUsage, "this task takes a text, and no messages");
      }
      run_one(model, task, prompt.text, input);
    } catch (Error& error) {
      if (!prompt.source.empty()) error.add_context(prompt.source);
      throw;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "{}\n", figures_line(model, fmt::format("answer {:.2f} s", took.count())));
}

}  // namespace haul::cli
