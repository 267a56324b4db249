#include "cli/config_questions.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::cli {
namespace {

using core::DistributedType;
using core::LaunchConfig;

class Questionnaire {
 public:
  explicit Questionnaire(const Ask& ask) : ask_(ask) {}

  std::string text(const std::string& question, const std::string& otherwise) const {
    for (std::string again;; again = "  An answer is needed.\n") {
      std::string answer = line(again + question, otherwise);
      if (!answer.empty()) return answer;
    }
  }

  int number(const std::string& question, int otherwise, int smallest, int largest) const {
    for (std::string again;;) {
      const std::string answer = line(again + question, std::to_string(otherwise));
      int value = 0;
      const char* end = answer.data() + answer.size();
      const auto [stop, code] = std::from_chars(answer.data(), end, value);
      if (code == std::errc{} && stop == end && value >= smallest && value <= largest) return value;
      again = fmt::format("  A number from {} to {}.\n", smallest, largest);
    }
  }

  bool yes(const std::string& question, bool otherwise) const {
    for (std::string again;; again = "  yes or no.\n") {
      std::string answer = line(again + question + " (yes/no)", otherwise ? "yes" : "no");
      std::transform(answer.begin(), answer.end(), answer.begin(), [](unsigned char c) {
        return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
      });
      if (answer == "yes" || answer == "y") return true;
      if (answer == "no" || answer == "n") return false;
    }
  }

  core::MixedPrecision precision(core::MixedPrecision otherwise) const {
    for (std::string again;; again = "  One of no, fp16, bf16, fp8.\n") {
      const auto value = core::parse_mixed_precision(
          line(again + "Mixed precision (no/fp16/bf16/fp8)?", core::name_of(otherwise)));
      if (value) return *value;
    }
  }

 private:
  std::string line(const std::string& question, const std::string& otherwise) const {
    const std::string shown = otherwise.empty() ? "" : fmt::format(" [{}]", otherwise);
    const auto answer = ask_(fmt::format("{}{} ", question, shown));
    if (!answer) {
      throw Error(ErrorKind::kResource, "the answers ended early; nothing was written");
    }
    const std::size_t begin = std::min(answer->find_first_not_of(" \t\r"), answer->size());
    const std::size_t end = answer->find_last_not_of(" \t\r");
    const std::string given = end == answer->npos ? "" : answer->substr(begin, end + 1 - begin);
    return given.empty() ? otherwise : given;
  }

  const Ask& ask_;
};

void ask_machines(const Questionnaire& questions, LaunchConfig& config) {
  constexpr int kMany = 1 << 20;
  config.num_machines = questions.number("How many machines?", config.num_machines, 1, kMany);
  if (config.num_machines == 1) {
    config.machine_rank = 0;
    return;
  }
  const int last = config.num_machines - 1;
  config.machine_rank =
      questions.number("Which one is this, from 0?", std::min(config.machine_rank, last), 0, last);
  config.main_process_ip =
      questions.text("The address of machine 0?", config.main_process_ip.value_or(""));
  config.main_process_port = questions.number("A port that is free there?",
                                              config.main_process_port.value_or(29500), 1, 65535);
  config.same_network = questions.yes("Are all machines in one local network?", true);
}

}  // namespace

LaunchConfig default_config(int gpus) {
  LaunchConfig config;
  config.mixed_precision = core::MixedPrecision::kNo;
  config.num_processes = std::max(1, gpus);
  config.use_cpu = gpus == 0;
  config.distributed_type = gpus > 1 ? DistributedType::kMultiGpu : DistributedType::kNo;
  return config;
}

LaunchConfig ask_config(const LaunchConfig& before, int gpus, const Ask& ask) {
  constexpr int kMany = 1 << 20;
  const Questionnaire questions(ask);
  LaunchConfig config = before;
  ask_machines(questions, config);
  config.use_cpu = questions.yes("Use the CPUs alone?", config.use_cpu);
  const int machines = config.num_machines;
  const int guess = std::max(machines, (config.use_cpu ? 1 : std::max(1, gpus)) * machines);
  do {
    config.num_processes = questions.number(
        machines == 1 ? "How many processes?" : "How many processes, on all machines together?",
        before.num_processes > 0 ? std::max(machines, before.num_processes) : guess, machines,
        kMany);
  } while (config.num_processes % machines != 0);
  config.gpu_ids.reset();
  if (!config.use_cpu) {
    config.gpu_ids = questions.text("Which GPUs, like 0,1?", before.gpu_ids.value_or("all"));
  }
  config.enable_cpu_affinity =
      questions.yes("Pin each process to cores of its own?", config.enable_cpu_affinity);
  config.mixed_precision =
      questions.precision(config.mixed_precision.value_or(core::MixedPrecision::kNo));
  if (config.num_processes > 1) {
    config.debug = questions.yes("Check what processes send each other (slower)?", config.debug);
  }
  config.other_type.clear();
  config.distributed_type = config.num_processes == 1 ? DistributedType::kNo
                            : config.use_cpu          ? DistributedType::kMultiCpu
                                                      : DistributedType::kMultiGpu;
  return config;
}

}  // namespace haul::cli
