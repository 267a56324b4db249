#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/ids.h"
#include "cli/verb.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/hub/hub_model.h"
#include "haul/bytes.h"
#include "haul/error.h"
#include "haul/tokenizer.h"

namespace haul::cli {
namespace {

struct Flags {
  std::string model;
  std::string text;
  std::string file;
  std::string pair;
  std::string ids;
  std::string chat;
  bool add_generation_prompt = false;
  bool lines = false;
  bool no_special_tokens = false;
  bool offsets = false;
  bool skip_special_tokens = false;
  bool json = false;
};

// What a tokenizer is made of; config.json is what the cache knows a model by.
const std::vector<std::string> kTokenizerFiles = {"config.json",
                                                  "tokenizer*",
                                                  "*.model",
                                                  "*.spm",
                                                  "vocab*",
                                                  "merges.txt",
                                                  "special_tokens_map.json",
                                                  "chat_template*"};

Tokenizer load(const std::string& model) {
  if (std::filesystem::exists(model)) return Tokenizer::load(model);
  const core::ModelFiles files = core::resolve_model(model, {core::Need::kConfigOnly, ""});
  try {
    return Tokenizer::load(files.folder);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotFound) throw;
  }
  return Tokenizer::load(core::download_snapshot(model, {"", kTokenizerFiles, {}}).folder);
}

core::Json to_json(const Encoding& encoding) {
  core::Json tokens = core::Json::array();
  for (const std::string& token : encoding.tokens) tokens.push_back(token);
  core::Json offsets = core::Json::array();
  for (const auto& [begin, end] : encoding.offsets) {
    offsets.push_back(core::Json::array({begin, end}));
  }
  return {{"ids", encoding.ids},
          {"tokens", std::move(tokens)},
          {"offsets", std::move(offsets)},
          {"type_ids", encoding.type_ids},
          {"special_tokens_mask", encoding.special_tokens_mask},
          {"attention_mask", encoding.attention_mask}};
}

// A token as a user can see it: no control characters.
std::string visible(const std::string& token) {
  const std::string quoted = core::Json(token).dump(-1, ' ', false);
  return quoted.substr(1, quoted.size() - 2);
}

void print(const Encoding& encoding, const Flags& flags) {
  if (flags.json) {
    fmt::print("{}\n", to_json(encoding).dump());
    return;
  }
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    fmt::print("{:>8}  {}", encoding.ids[i], visible(encoding.tokens[i]));
    if (flags.offsets) {
      fmt::print("  {}-{}", encoding.offsets[i].first, encoding.offsets[i].second);
    }
    fmt::print("\n");
  }
}

// A file with messages, or with an object of them and of tools, documents and variables.
std::string chat_text(const Tokenizer& tokenizer, const Flags& flags) {
  const core::Json file = core::read_json(flags.chat);
  ChatOptions options;
  options.add_generation_prompt = flags.add_generation_prompt;
  if (!file.is_object()) return tokenizer.apply_chat(file.dump(), options);
  core::Json variables = core::Json::object();
  for (const auto& [key, value] : file.items()) {
    if (key == "tools") {
      options.tools = value.dump();
    } else if (key == "documents") {
      options.documents = value.dump();
    } else if (key != "messages") {
      variables[key] = value;
    }
  }
  options.variables = variables.dump();
  return tokenizer.apply_chat(file.value("messages", core::Json()).dump(), options);
}

void print_chat(const Tokenizer& tokenizer, const Flags& flags) {
  const std::string text = chat_text(tokenizer, flags);
  EncodeOptions options;
  options.add_special_tokens = false;
  options.truncate_and_pad = false;
  const Encoding encoding = tokenizer.encode(text, options);
  if (!flags.json) {
    print(encoding, flags);
    return;
  }
  core::Json json = {{"text", text}};
  json.update(to_json(encoding));
  fmt::print("{}\n", json.dump());
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void print_lines(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
                 const Flags& flags) {
  const std::vector<std::string_view> lines = split_lines(text);
  if (flags.offsets) {
    for (const std::string_view line : lines) {
      fmt::print("{}\n", to_json(tokenizer.encode(line, options)).dump());
    }
    return;
  }
  const EncodedBatch batch = tokenizer.encode_batch(lines, options);
  std::string out;
  std::size_t at = 0;
  constexpr std::size_t kFlush = std::size_t{1} << 20;
  for (const std::size_t end : batch.ends) {
    out += '[';
    for (std::size_t first = at; at < end; ++at) {
      if (at > first) out += ", ";
      fmt::format_to(std::back_inserter(out), "{}", batch.ids[at]);
    }
    out += "]\n";
    if (out.size() < kFlush) continue;
    fmt::print("{}", out);
    out.clear();
  }
  fmt::print("{}", out);
}

void tokenize(const CLI::App& verb, const Flags& flags) {
  const bool decodes = verb.count("--decode") > 0;
  const bool has_text = verb.count("--text") > 0;
  const bool has_file = verb.count("--file") > 0;
  const bool chats = verb.count("--chat") > 0;
  if (decodes + has_text + has_file + chats != 1) {
    throw Error(ErrorKind::kUsage, "tokenize: give one of --text, --file, --chat and --decode");
  }
  const Tokenizer tokenizer = load(flags.model);
  if (decodes) {
    const std::string text =
        tokenizer.decode(parse_ids("--decode", flags.ids), flags.skip_special_tokens);
    fmt::print("{}\n", flags.json ? core::Json({{"text", text}}).dump() : text);
    return;
  }
  if (chats) {
    print_chat(tokenizer, flags);
    return;
  }
  EncodeOptions options;
  options.add_special_tokens = !flags.no_special_tokens;
  if (has_file && flags.lines) {
    const core::MappedFile file(flags.file);
    print_lines(tokenizer, file.text(), options, flags);
    return;
  }
  const std::string text = has_text ? flags.text : core::read_file(flags.file, 4 * kGiB);
  print(verb.count("--pair") > 0 ? tokenizer.encode_pair(text, flags.pair, options)
                                 : tokenizer.encode(text, options),
        flags);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("tokenize", "Turn text into a model's token ids, and back");
  verb->add_option("MODEL", flags->model,
                   "a folder, a tokenizer's file, a .gguf or a name on the hub")
      ->required();
  verb->add_option("--text", flags->text, "the text");
  verb->add_option("--file", flags->file, "a file with the text");
  verb->add_flag("--lines", flags->lines, "each line of the file by itself: a JSON array a line");
  verb->add_option("--pair", flags->pair, "a second sequence");
  verb->add_flag("--no-special-tokens", flags->no_special_tokens,
                 "without the tokens that mark a sequence's ends");
  verb->add_flag("--offsets", flags->offsets, "where each token lies, in characters");
  verb->add_option("--chat", flags->chat,
                   "a JSON file with messages, through the model's chat template");
  verb->add_flag("--add-generation-prompt", flags->add_generation_prompt,
                 "end the chat where the assistant begins to speak");
  verb->add_option("--decode", flags->ids, "ids to turn into text: 1,2,3");
  verb->add_flag("--skip-special-tokens", flags->skip_special_tokens,
                 "leave special tokens out of decoded text");
  verb->add_flag("--json", flags->json, "print JSON");
  verb->callback([flags, verb] { tokenize(*verb, *flags); });
}

}  // namespace haul::cli
