#include "cli/torch/run_task.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/torch/run_output.h"
#include "cli/torch/run_prompts.h"
#include "core/base/json.h"
#include "haul/error.h"
#include "haul/torch/share_work.h"

namespace haul::cli {
namespace {

constexpr std::array<std::pair<const char*, Task>, 4> kTasks{{{"generate", Task::kGenerate},
                                                              {"embed", Task::kEmbed},
                                                              {"classify", Task::kClassify},
                                                              {"fill-mask", Task::kFillMask}}};

std::string embed(LoadedModel& model, const Prompt& prompt, const TaskInput& input) {
  const std::vector<float> vector =
      prompt.ids.empty() ? model.embed(prompt.text) : model.embed(prompt.ids);
  if (input.json) return core::Json{{"embedding", vector}}.dump() + "\n";
  return fmt::format("{}\n", fmt::join(vector, " "));
}

std::string classify(LoadedModel& model, const Prompt& prompt, const TaskInput& input) {
  std::vector<Label> labels =
      prompt.ids.empty() ? model.classify(prompt.text) : model.classify(prompt.ids);
  if (!input.labels.empty() && input.labels.size() != labels.size()) {
    throw Error(ErrorKind::kUsage, fmt::format("--labels names {} labels, and the model has {}",
                                               input.labels.size(), labels.size()));
  }
  core::Json json = core::Json::array();
  std::string lines;
  for (Label& label : labels) {
    if (!input.labels.empty()) label.name = input.labels[static_cast<std::size_t>(label.index)];
    json.push_back({{"label", label.name}, {"score", label.score}});
    lines += fmt::format("{:.4f}  {}\n", label.score, label.name);
  }
  return input.json ? core::Json{{"labels", json}}.dump() + "\n" : lines;
}

std::string fill_mask(LoadedModel& model, const Prompt& prompt, const TaskInput& input) {
  const auto masks =
      prompt.ids.empty() ? model.fill_mask(prompt.text) : model.fill_mask(prompt.ids);
  core::Json json = core::Json::array();
  std::string lines;
  for (const std::vector<Word>& words : masks) {
    if (masks.size() > 1) {
      lines += fmt::format("{}mask {}\n", json.empty() ? "" : "\n", json.size() + 1);
    }
    core::Json list = core::Json::array();
    for (const Word& word : words) {
      list.push_back({{"word", word.text}, {"id", word.id}, {"score", word.score}});
      lines += fmt::format("{:.4f}  {}\n", word.score, word.text);
    }
    json.push_back(std::move(list));
  }
  return input.json ? core::Json{{"masks", json}}.dump() + "\n" : lines;
}

std::string answer_to(LoadedModel& model, Task task, const Prompt& prompt, const TaskInput& input) {
  try {
    if (!prompt.messages.is_null()) {
      throw Error(ErrorKind::kUsage, "this task takes a text, and no messages");
    }
    if (task == Task::kEmbed) return embed(model, prompt, input);
    if (task == Task::kClassify) return classify(model, prompt, input);
    return fill_mask(model, prompt, input);
  } catch (Error& error) {
    if (!prompt.source.empty()) error.add_context(prompt.source);
    throw;
  }
}

}  // namespace

Task parse_task(const std::string& name) {
  for (const auto& [known, task] : kTasks) {
    if (name == known) return task;
  }
  throw Error(ErrorKind::kUsage, fmt::format("there is no task '{}'", name),
              "the tasks are generate, embed, classify and fill-mask");
}

void run_task(LoadedModel& model, Task task, const TaskInput& input, const PartialState& state) {
  const auto start = std::chrono::steady_clock::now();
  SharedWork work;
  work.count = static_cast<std::int64_t>(input.texts.size());
  work.task = [&](std::int64_t i) {
    return answer_to(model, task, input.texts[static_cast<std::size_t>(i)], input);
  };
  work.result = [&](std::int64_t i, const std::string& text) {
    if (i > 0 && !input.json && task != Task::kEmbed) show("\n");
    show(text);
  };
  share_work(state, work);
  if (!state.is_main_process()) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "{}\n", figures_line(model, fmt::format("answer {:.2f} s", took.count())));
}

}  // namespace haul::cli
