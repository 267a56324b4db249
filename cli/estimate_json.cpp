#include <cmath>

#include "cli/estimate_report.h"
#include "core/base/json.h"

namespace haul::cli {
namespace {

using core::Json;

// Whole bytes as an integer, others with their fraction.
Json number(double bytes) {
  if (std::floor(bytes) == bytes && bytes < 0x1p63) return static_cast<Bytes>(bytes);
  return bytes;
}

Json verdict_json(const NamedVerdict& named) {
  const Verdict& v = named.verdict;
  Json json = {{"name", named.name}, {"memory", named.memory}, {"budget", v.budget}};
  switch (v.fit) {
    case Fit::kFits:
      json["verdict"] = "fits";
      json["free"] = v.free;
      break;
    case Fit::kFitsWithOffload:
      json["verdict"] = "fits_with_offload";
      json["offloaded"] = v.offloaded;
      break;
    case Fit::kDoesNotFit:
      json["verdict"] = "does_not_fit";
      json["missing"] = v.missing;
      break;
  }
  return json;
}

}  // namespace

std::string estimate_json(const EstimateReport& report) {
  Json rows = Json::array();
  for (const PeerRow& row : report.rows) {
    rows.push_back({{"dtype", name(row.dtype)},
                    {"largest_layer", number(row.largest_layer)},
                    {"largest_layer_names", report.sizes.largest_layer.names},
                    {"total", number(row.total)},
                    {"training_adam", row.training_adam ? number(*row.training_adam) : Json()}});
  }
  Json true_rows = Json::array();
  for (const TrueRow& row : report.true_rows) {
    true_rows.push_back(
        {{"dtype", name(row.dtype)}, {"total", row.total}, {"unshrunk", row.unshrunk}});
  }
  Json table = Json::array();
  for (const TableEntry& entry : report.table) {
    table.push_back({{"tag", name(entry.tag)}, {"bytes", entry.bytes}});
  }
  Json json = {{"model", report.model},
               {"architecture", report.architecture},
               {"source", report.from_config ? "config" : "checkpoint"},
               {"parameters", report.parameters},
               {"rows", std::move(rows)},
               {"true_rows", std::move(true_rows)},
               {"run", report.run},
               {"table", std::move(table)},
               {"total", total_bytes(report.table)}};
  if (report.file_bytes) json["file_bytes"] = *report.file_bytes;
  if (report.fit) json["fit"] = verdict_json(*report.fit);
  if (!report.gpus.empty()) {
    json["gpus"] = Json::array();
    for (const NamedVerdict& gpu : report.gpus) json["gpus"].push_back(verdict_json(gpu));
  }
  json["notes"] = report.notes;
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace haul::cli
