#include "core/launch/rank_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "haul/error.h"

namespace haul::core {
namespace {

constexpr int kMaxWorld = 1 << 20;
constexpr int kMaxPort = 65535;

struct Names {
  RankSource source;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;  // may be null
};
constexpr Names kTorchrun{RankSource::kTorchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK",
                          "LOCAL_WORLD_SIZE"};
constexpr Names kMpi[] = {
    {RankSource::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {RankSource::kMvapich, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {RankSource::kMpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  // Empty counts as unset.
  std::optional<std::string> text(const char* name) const {
    auto value = variables_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<int> number(const char* name, int smallest, int largest) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int result = 0;
    const char* end = value->data() + value->size();
    const auto [stop, code] = std::from_chars(value->data(), end, result);
    if (code != std::errc{} || stop != end || result < smallest || result > largest) {
      throw Error(ErrorKind::kUsage, fmt::format("{} is {}, expected a number from {} to {}", name,
                                                 quote(*value), smallest, largest));
    }
    return result;
  }

 private:
  const Variables& variables_;
};

void read_family(const Reader& reader, const Names& names, RankEnvironment& result) {
  result.source = names.source;
  result.world = reader.number(names.world, 1, kMaxWorld).value();
  result.rank = reader.number(names.rank, 0, result.world - 1).value();
  // A launcher that gives no local rank starts one process on each machine.
  result.local_world = reader.has(names.local_rank) ? result.world : 1;
  if (names.local_world != nullptr) {
    const auto given = reader.number(names.local_world, 1, result.world);
    result.local_world = given.value_or(result.local_world);
  }
  result.local_rank = reader.number(names.local_rank, 0, result.local_world - 1).value_or(0);
}

// The count of node `index` in Slurm's "2(x3),1", which is 2, 2, 2 and 1.
std::optional<int> tasks_of_node(std::string_view text, int index) {
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    int tasks = 0;
    int nodes = 1;
    auto [stop, code] = std::from_chars(item.data(), item.data() + item.size(), tasks);
    if (code != std::errc{}) return std::nullopt;
    item.remove_prefix(static_cast<std::size_t>(stop - item.data()));
    if (item.starts_with("(x")) {
      item.remove_prefix(2);
      if (std::from_chars(item.data(), item.data() + item.size(), nodes).ec != std::errc{}) {
        return std::nullopt;
      }
    }
    if (nodes < 1) return std::nullopt;
    if (index < nodes) return tasks;
    index -= nodes;
  }
  return std::nullopt;
}

// The first host of "gpu[03-05,9],login": "gpu03".
std::string first_host(std::string_view list) {
  const std::size_t end = list.find_first_of("[,");
  std::string host(list.substr(0, end));
  if (end == list.npos || list[end] == ',') return host;
  list.remove_prefix(end + 1);
  host += list.substr(0, list.find_first_of("-,]"));
  const std::size_t close = list.find(']');
  if (close == list.npos) return host;
  list.remove_prefix(close + 1);
  return host.append(list.substr(0, list.find(',')));
}

// In the script of sbatch the variables of rank 0 are set, but nobody started the others.
bool is_batch_script(const Reader& reader) {
  return reader.text("ENVIRONMENT") == "BATCH" && !reader.has("SLURM_STEP_ID");
}

void read_slurm(const Reader& reader, RankEnvironment& result) {
  const bool step = reader.has("SLURM_STEP_NUM_TASKS");
  read_family(reader,
              {RankSource::kSlurm, "SLURM_PROCID", step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
               "SLURM_LOCALID", nullptr},
              result);
  auto layout = reader.text("SLURM_STEP_TASKS_PER_NODE");
  if (!layout) layout = reader.text("SLURM_TASKS_PER_NODE");
  const auto node = reader.number("SLURM_NODEID", 0, kMaxWorld);
  if (layout && node) {
    const auto tasks = tasks_of_node(*layout, *node);
    if (tasks && *tasks > result.local_rank && *tasks <= result.world) result.local_world = *tasks;
  }
  auto hosts = reader.text("SLURM_STEP_NODELIST");
  if (!hosts) hosts = reader.text("SLURM_JOB_NODELIST");
  if (hosts && result.local_world < result.world) result.master_addr = first_host(*hosts);
}

}  // namespace

RankEnvironment read_rank_environment(const Variables& variables) {
  const Reader reader(variables);
  RankEnvironment result;
  if (reader.has(kTorchrun.rank) != reader.has(kTorchrun.world)) {
    const bool rank = reader.has(kTorchrun.rank);
    throw Error(ErrorKind::kUsage,
                fmt::format("{} is set but {} is not", rank ? "RANK" : "WORLD_SIZE",
                            rank ? "WORLD_SIZE" : "RANK"),
                "a launcher sets both; unset it to run alone");
  }
  if (reader.has(kTorchrun.rank)) {
    read_family(reader, kTorchrun, result);
  } else {
    for (const Names& names : kMpi) {
      if (result.source == RankSource::kAlone && reader.has(names.rank) &&
          reader.has(names.world)) {
        read_family(reader, names, result);
      }
    }
    const bool tasks = reader.has("SLURM_STEP_NUM_TASKS") || reader.has("SLURM_NTASKS");
    if (result.source == RankSource::kAlone && reader.has("SLURM_PROCID") && tasks &&
        !is_batch_script(reader)) {
      read_slurm(reader, result);
    }
  }
  if (const auto address = reader.text("MASTER_ADDR")) result.master_addr = *address;
  result.master_port = reader.number("MASTER_PORT", 1, kMaxPort).value_or(result.master_port);
  return result;
}

RankEnvironment read_rank_environment() {
  return read_rank_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace haul::core
