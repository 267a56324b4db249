#include "cli/torch/run_prompts.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "cli/torch/interrupt.h"
#include "cli/torch/run_output.h"
#include "core/base/terminal.h"
#include "haul/error.h"
#include "haul/torch/share_work.h"

namespace haul::cli {
namespace {

using Ids = std::vector<TokenId>;

// The prompt as the model wants it: a turn of a chat where it has a template, else as it is.
Ids ids_of(const LoadedModel& model, const Prompt& prompt, const PromptOptions& options) {
  if (!prompt.ids.empty()) return prompt.ids;
  const Tokenizer& tokenizer = model.tokenizer();
  if (!prompt.messages.is_null()) return chat_ids(tokenizer, prompt.messages);
  if (options.raw || !tokenizer.chat_template()) {
    return tokenizer.encode_ids(prompt.text, {true, false});
  }
  core::Json messages = first_messages(options);
  messages.push_back({{"role", "user"}, {"content", prompt.text}});
  return chat_ids(tokenizer, messages);
}

// Before any is answered, so that the line is known and no work is lost.
void check(const LoadedModel& model, const Ids& ids) {
  if (ids.empty()) throw Error(ErrorKind::kUsage, "there is no prompt: it has no tokens");
  const auto& dimensions = model.description().dimensions;
  const TokenId largest = *std::max_element(ids.begin(), ids.end());
  if (dimensions && dimensions->vocabulary > 0 && largest >= dimensions->vocabulary) {
    throw Error(ErrorKind::kUsage, fmt::format("token {} is not in the vocabulary of {} tokens",
                                               largest, dimensions->vocabulary));
  }
  const bool has_encoder = dimensions && dimensions->encoder_layers > 0;
  const auto tokens = static_cast<std::int64_t>(ids.size());
  if (has_encoder || tokens < model.context()) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("the prompt has {} tokens, and the context {}", tokens, model.context()),
              "shorten the prompt, or plan for a longer context");
}

std::vector<Ids> all_ids(const LoadedModel& model, const std::vector<Prompt>& prompts,
                         const PromptOptions& options) {
  std::vector<Ids> result;
  for (const Prompt& prompt : prompts) {
    try {
      result.push_back(ids_of(model, prompt, options));
      check(model, result.back());
    } catch (Error& error) {
      if (!prompt.source.empty()) error.add_context(prompt.source);
      throw;
    }
  }
  return result;
}

void show_progress(std::size_t done, std::size_t all) {
  if (core::stderr_is_terminal()) fmt::print(stderr, "\r{} of {} prompts\x1b[K", done, all);
}
void clear_progress() {
  if (core::stderr_is_terminal()) fmt::print(stderr, "\r\x1b[K");
}

void answer(LoadedModel& model, const std::vector<TokenId>& ids, const PromptOptions& options) {
  const LoadedModel::OnText on_text = options.json ? LoadedModel::OnText() : show;
  const Generated generated = model.generate(ids, options.generate, on_text);
  show(options.json ? to_json(generated, model).dump() + "\n" : "\n");
  fmt::print(stderr, "{}\n", figures_line(model));
}

// Many prompts, a batch a task.
class Answers {
 public:
  // `share` does the tasks.
  using Share = std::function<std::int64_t(const SharedWork&)>;
  Answers(LoadedModel& model, const std::vector<Prompt>& prompts, const PromptOptions& options,
          const PartialState& state, Share share)
      : model_(model),
        prompts_(prompts),
        options_(options),
        state_(state),
        share_(std::move(share)) {
    // The others need not look at all of them, too.
    if (state.is_main_process()) ids_ = all_ids(model, prompts, options);
  }

  void run() {
    const auto start = std::chrono::steady_clock::now();
    SharedWork work;
    work.count = (count_of(prompts_) + options_.batch - 1) / options_.batch;
    work.task = [&](std::int64_t task) { return answers_of(task); };
    work.result = [](std::int64_t, const std::string& text) {
      clear_progress();
      show(text);
    };
    work.progress = [&](std::int64_t tasks) { show_progress(done_after(tasks), prompts_.size()); };
    work.cancel = &interrupted();
    if (state_.is_main_process()) show_progress(0, prompts_.size());
    const std::int64_t answered = share_(work);
    clear_progress();
    std::int64_t tokens = 0;
    for (const std::int64_t some : state_.gather_object(tokens_)) tokens += some;
    if (!state_.is_main_process()) return;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    fmt::print(stderr, "{}\n",
               figures_line(model_, fmt::format("{} of {} prompts in {:.2f} s, {:.1f} tokens/s",
                                                done_after(answered), prompts_.size(), took.count(),
                                                static_cast<double>(tokens) / took.count())));
  }

 private:
  template <typename T>
  static std::int64_t count_of(const std::vector<T>& items) {
    return static_cast<std::int64_t>(items.size());
  }
  std::size_t done_after(std::int64_t tasks) const {
    return static_cast<std::size_t>(std::min(tasks * options_.batch, count_of(prompts_)));
  }

  std::string answers_of(std::int64_t task) {
    const std::int64_t first = task * options_.batch;
    const std::int64_t end = std::min(first + options_.batch, count_of(prompts_));
    const std::vector<Ids> ids =
        ids_.empty() ? all_ids(model_, {prompts_.begin() + first, prompts_.begin() + end}, options_)
                     : std::vector<Ids>(ids_.begin() + first, ids_.begin() + end);
    std::string text;
    for (const Generated& generated : model_.generate_batch(ids, options_.generate)) {
      tokens_ += count_of(generated.ids);
      if (options_.json) {
        text += to_json(generated, model_).dump() + "\n";
      } else {
        text += (first > 0 || !text.empty() ? "\n" : "") + generated.text + "\n";
      }
    }
    return text;
  }

  LoadedModel& model_;
  const std::vector<Prompt>& prompts_;
  const PromptOptions& options_;
  const PartialState& state_;
  Share share_;
  std::vector<Ids> ids_;     // of the main process: of all prompts
  std::int64_t tokens_ = 0;  // of this process's answers
};

// `model` runs tasks on the main process with the help of the others.
template <typename Model>
void answer_together(Model& model, const std::vector<Prompt>& prompts, const PromptOptions& options,
                     const PartialState& state) {
  const auto share = [&](const SharedWork& work) { return model.run(work); };
  if (prompts.size() > 1) {
    Answers(model.model(), prompts, options, state, share).run();
    return;
  }
  SharedWork one;
  one.count = 1;
  one.task = [&](std::int64_t) {
    answer(model.model(), all_ids(model.model(), prompts, options).front(), options);
    return std::string();
  };
  one.result = [](std::int64_t, const std::string&) {};
  share(one);
}

}  // namespace

core::Json first_messages(const PromptOptions& options) {
  core::Json messages = core::Json::array();
  if (!options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  return messages;
}

std::vector<TokenId> chat_ids(const Tokenizer& tokenizer, const core::Json& messages) {
  ChatOptions chat;
  chat.add_generation_prompt = true;
  // What was typed may be no text at all.
  const std::string text = messages.dump(-1, ' ', false, core::Json::error_handler_t::replace);
  return tokenizer.encode_ids(tokenizer.apply_chat(text, chat), {false, false});
}

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void answer(LoadedModel& model, const std::vector<Prompt>& prompts, const PromptOptions& options,
            const PartialState& state) {
  if (prompts.size() == 1 && !state.use_distributed()) {
    answer(model, all_ids(model, prompts, options).front(), options);
  } else {
    Answers(model, prompts, options, state, [&](const SharedWork& work) {
      return share_work(state, work);
    }).run();
  }
}

void answer(PipelinedModel& model, const std::vector<Prompt>& prompts, const PromptOptions& options,
            const PartialState& state) {
  answer_together(model, prompts, options, state);
}

void answer(TensorParallelModel& model, const std::vector<Prompt>& prompts,
            const PromptOptions& options, const PartialState& state) {
  answer_together(model, prompts, options, state);
}

}  // namespace haul::cli
