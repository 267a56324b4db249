#include "core/convert/convert.h"

#include <fmt/format.h>

#include "core/base/disk_space.h"
#include "core/base/file.h"
#include "core/base/terminal.h"
#include "core/convert/output_folder.h"
#include "core/convert/side_files.h"
#include "core/describe/transformers_tensors.h"
#include "core/formats/cast.h"
#include "core/formats/gguf.h"
#include "core/formats/sharded_writer.h"
#include "haul/error.h"
#include "tokenizers/gguf_files.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

// What a safetensors file said about itself, and that its tensors are torch's, which Transformers
// wants to be told.
SafetensorsMetadata output_metadata(const Checkpoint& checkpoint) {
  SafetensorsMetadata metadata;
  bool has_format = false;
  if (checkpoint.format() == CheckpointFormat::kSafetensors && checkpoint.metadata().is_object()) {
    for (const auto& [key, value] : checkpoint.metadata().items()) {
      has_format = has_format || key == "format";
      metadata.emplace_back(key, value.get<std::string>());
    }
  }
  if (!has_format) metadata.emplace_back("format", "pt");
  return metadata;
}

// The files of the tokenizer inside a GGUF file; none where it has none, and a note where haul does
// not know its kind.
std::vector<tokenizers::TextFile> inner_tokenizer(const Checkpoint& checkpoint,
                                                  std::vector<std::string>& notes) {
  if (checkpoint.format() != CheckpointFormat::kGguf) return {};
  const MappedFile& file = checkpoint.files().front();
  const std::string source = file.path().string();
  try {
    return tokenizers::make_gguf_files(parse_gguf(file.bytes(), source), source);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kUnsupported) {
      notes.push_back(fmt::format("no tokenizer is written: {}", error.what()));
    } else if (error.kind() != ErrorKind::kNotFound) {
      throw;
    }
    return {};
  }
}

}  // namespace

ConvertResult convert(const fs::path& input, const fs::path& output,
                      const ConvertOptions& options) {
  if (options.dtype && !is_castable(*options.dtype)) {
    throw Error(ErrorKind::kUsage, fmt::format("cannot cast to {}", name(*options.dtype)),
                "choose F16, BF16, F32 or F64");
  }
  const Checkpoint checkpoint = Checkpoint::open(input);
  const TransformersTensors out(checkpoint, options.dtype);
  const std::vector<HeaderTensor>& tensors = out.headers();
  const ShardPlan plan = plan_shards(tensors, options.max_shard_size);

  OutputFolder folder(output);
  require_disk_space(fs::absolute(folder.path()).parent_path(), plan.total_size);
  ConvertResult result;
  result.notes = checkpoint.notes();
  std::vector<tokenizers::TextFile> made = inner_tokenizer(checkpoint, result.notes);
  const fs::path beside = fs::is_directory(input) ? input : input.parent_path();
  result.files = copy_side_files(beside, folder.path(), options.dtype, made.empty());
  if (out.config()) made.push_back({"config.json", out.config()->dump(2) + "\n"});
  for (const tokenizers::TextFile& file : made) {
    write_file_atomically(folder.path() / file.name, file.text);
    std::erase(result.files, file.name);
    result.files.push_back(file.name);
  }
  made = {};

  Progress progress("converting", plan.total_size);
  write_shards(folder.path(), tensors, output_metadata(checkpoint), plan,
               [&](std::size_t i, SafetensorsWriter& writer) {
                 out.stream(i, [&](std::span<const std::byte> piece) {
                   writer.write(piece);
                   progress.advance(piece.size());
                 });
               });
  folder.commit();
  progress.finish();

  for (const Shard& shard : plan.shards) result.files.push_back(shard.file);
  if (plan.shards.size() > 1) result.files.emplace_back("model.safetensors.index.json");
  result.format = checkpoint.format();
  result.tensors = tensors.size();
  result.bytes = plan.total_size;
  if (!out.note().empty()) result.notes.push_back(out.note());
  return result;
}

}  // namespace haul::core
