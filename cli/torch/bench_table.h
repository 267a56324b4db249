#pragma once

// What `haul bench` found, a row a figure.

#include <optional>
#include <string>
#include <vector>

#include "cli/torch/bench_compare.h"
#include "core/base/json.h"

namespace haul::cli {

struct BenchRow {
  std::string name;
  std::string unit;
  bool more_is_better = true;
  std::optional<double> limit;    // of the machine
  std::optional<double> planned;  // by haul
  std::vector<double> haul;       // a figure a round
  std::vector<double> peer;
  Comparison ids;      // with the peer's, where there is one
  std::string remark;  // what both were given, or why there is no peer's figure

  static double median(std::vector<double> figures);  // 0 where there is none
  // How much better haul is.
  std::optional<double> times_the_peer() const;
  std::optional<double> of_limit() const;
};

std::string bench_table(const std::vector<BenchRow>& rows);
// One row in words, for whoever waits for the others.
std::string bench_line(const BenchRow& row);
core::Json to_json(const BenchRow& row);

}  // namespace haul::cli
