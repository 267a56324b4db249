#pragma once

// The answer of `haul estimate`, and its two ways out: JSON and text.

#include <optional>
#include <string>
#include <vector>

#include "haul/estimate.h"
#include "haul/estimate_rows.h"
#include "haul/fit.h"
#include "haul/module_sizes.h"

namespace haul::cli {

struct NamedVerdict {
  std::string name;  // of the GPU, or the size as the user wrote it
  Bytes memory = 0;
  Verdict verdict;
};

struct EstimateReport {
  std::string model;
  std::string architecture;
  bool from_config = true;  // else described from the checkpoint's headers
  std::uint64_t parameters = 0;
  MaximumSizes sizes;
  std::vector<PeerRow> rows;
  std::vector<TrueRow> true_rows;
  std::string run;  // what the table is of: "inference in bfloat16, batch 1, 4096 tokens"
  std::vector<TableEntry> table;
  std::optional<Bytes> file_bytes;
  std::optional<NamedVerdict> fit;
  std::vector<NamedVerdict> gpus;
  std::vector<std::string> notes;
};

// No trailing newline. Text is coloured and has bars where stdout is a terminal.
std::string estimate_json(const EstimateReport& report);
std::string estimate_text(const EstimateReport& report);

}  // namespace haul::cli
