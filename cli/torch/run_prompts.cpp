#include "cli/torch/run_prompts.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "cli/torch/interrupt.h"
#include "cli/torch/run_output.h"
#include "core/base/terminal.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

using Ids = std::vector<TokenId>;

// The prompt as the model wants it: a turn of a chat where it has a template, else as it is.
Ids ids_of(const LoadedModel& model, const Prompt& prompt, const PromptOptions& options) {
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
void check_length(const LoadedModel& model, const Ids& ids) {
  if (ids.empty()) throw Error(ErrorKind::kUsage, "there is no prompt: it has no tokens");
  const auto& dimensions = model.description().dimensions;
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
      check_length(model, result.back());
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

void answer_many(LoadedModel& model, const std::vector<Ids>& prompts,
                 const PromptOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::size_t tokens = 0;
  std::size_t done = 0;
  while (done < prompts.size() && !interrupted()) {
    show_progress(done, prompts.size());
    const auto first = prompts.begin() + static_cast<std::ptrdiff_t>(done);
    const auto count = std::min(static_cast<std::ptrdiff_t>(options.batch), prompts.end() - first);
    const auto answers = model.generate_batch({first, first + count}, options.generate);
    clear_progress();
    for (const Generated& generated : answers) {
      tokens += generated.ids.size();
      if (options.json) {
        show(to_json(generated, model).dump() + "\n");
      } else {
        show((done > 0 ? "\n" : "") + generated.text + "\n");
      }
      ++done;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "{}\n",
             figures_line(model, fmt::format("{} of {} prompts in {:.2f} s, {:.1f} tokens/s", done,
                                             prompts.size(), took.count(),
                                             static_cast<double>(tokens) / took.count())));
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

void answer(LoadedModel& model, const std::vector<TokenId>& ids, const PromptOptions& options) {
  const LoadedModel::OnText on_text = options.json ? LoadedModel::OnText() : show;
  const Generated generated = model.generate(ids, options.generate, on_text);
  show(options.json ? to_json(generated, model).dump() + "\n" : "\n");
  fmt::print(stderr, "{}\n", figures_line(model));
}

void answer(LoadedModel& model, const std::vector<Prompt>& prompts, const PromptOptions& options) {
  const std::vector<Ids> all = all_ids(model, prompts, options);
  if (all.size() == 1) {
    answer(model, all.front(), options);
  } else {
    answer_many(model, all, options);
  }
}

}  // namespace haul::cli
