#include "core/convert/convert.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/verb.h"
#include "core/base/json.h"
#include "core/base/terminal.h"
#include "haul/error.h"

namespace haul::cli {
namespace {

// "bf16", "BF16", "bfloat16" and "torch.bfloat16" alike.
Dtype parse_dtype(const std::string& text) {
  std::string upper = text;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (upper.starts_with("FP")) upper.erase(1, 1);
  auto dtype = dtype_from_name(upper);
  if (!dtype) dtype = dtype_from_torch_name(text);
  if (!dtype) {
    throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a dtype", text),
                "choose F16, BF16, F32 or F64");
  }
  return *dtype;
}

std::string_view format_name(core::CheckpointFormat format) {
  switch (format) {
    case core::CheckpointFormat::kSafetensors:
      return "safetensors";
    case core::CheckpointFormat::kTorchZip:
      return "torch";
    case core::CheckpointFormat::kGguf:
      return "gguf";
    case core::CheckpointFormat::kOffloadFolder:
      return "offload folder";
  }
  return "";
}

}  // namespace

void add_convert(CLI::App& app) {
  struct Flags {
    std::string input;
    std::string output;
    std::string dtype;
    std::string max_shard_size = "5GB";
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb =
      app.add_subcommand("convert", "Write a checkpoint of any format as a safetensors folder");
  verb->add_option("IN", flags->input, "a checkpoint file, an index or a folder")->required();
  verb->add_option("OUT", flags->output, "the folder to make")->required();
  verb->add_option("--dtype", flags->dtype, "cast F16, BF16, F32 and F64 tensors to one of these");
  verb->add_option("--max-shard-size", flags->max_shard_size, "tensors' bytes a file")
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "print the result as JSON");
  verb->callback([flags] {
    core::ConvertOptions options;
    if (!flags->dtype.empty()) options.dtype = parse_dtype(flags->dtype);
    options.max_shard_size = parse_bytes(flags->max_shard_size);
    const core::ConvertResult result = core::convert(flags->input, flags->output, options);
    for (const std::string& note : result.notes) fmt::print(stderr, "note: {}\n", note);
    if (flags->json) {
      const core::Json json{{"input", flags->input},
                            {"output", flags->output},
                            {"format", format_name(result.format)},
                            {"tensors", result.tensors},
                            {"bytes", result.bytes},
                            {"files", result.files},
                            {"notes", result.notes}};
      fmt::print("{}\n", json.dump(2));
    } else {
      fmt::print("{}: {} tensors, {}, {} files\n", flags->output, result.tensors,
                 format_bytes(result.bytes), result.files.size());
    }
  });
}

}  // namespace haul::cli
