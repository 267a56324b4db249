#include "core/launch/launch_plan.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace haul::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LaunchMachine machine(int gpus, int cores,
                      const std::map<std::string, std::string>& variables = {}) {
  LaunchMachine result;
  result.gpus = gpus;
  result.cores = cores;
  result.variables = [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return result;
}

LaunchRequest request(const std::vector<std::string>& program = {"prog"}) {
  LaunchRequest result;
  result.program = program;
  return result;
}

std::map<std::string, std::string> as_map(const EnvironmentVariables& variables) {
  return {variables.begin(), variables.end()};
}

LaunchConfig config(const std::string& text) {
  return parse_launch_config(text, false, "c.yaml");
}

void expect_usage(const LaunchRequest& flags, const std::optional<LaunchConfig>& file,
                  const std::string& message) {
  test::expect_error(ErrorKind::kUsage, HasSubstr(message),
                     [&] { plan_launch(flags, file, machine(0, 4)); });
}

TEST(LaunchPlan, WithoutFlagsTakesOneProcessAGpuAndSaysWhatItGuessed) {
  EXPECT_EQ(plan_launch(request(), std::nullopt, machine(4, 8)).world, 4);
  const LaunchPlan plan = plan_launch(request(), std::nullopt, machine(0, 8));
  EXPECT_EQ(plan.world, 1);
  EXPECT_THAT(plan.guesses,
              ElementsAre("--num_processes 1", "--num_machines 1", "--mixed_precision no"));
}

TEST(LaunchPlan, PrefersAFlagToTheConfigToAGuess) {
  const auto file = config(
      "distributed_type: MULTI_CPU\nnum_processes: 3\nmixed_precision: bf16\nuse_cpu: true\n"
      "main_process_port: 1234\ngpu_ids: 0,1\n");
  LaunchPlan plan = plan_launch(request(), file, machine(8, 6));
  EXPECT_EQ(plan.world, 3);
  EXPECT_EQ(plan.master_port, 1234);
  auto variables = as_map(plan.variables);
  EXPECT_EQ(variables["ACCELERATE_MIXED_PRECISION"], "bf16");
  EXPECT_EQ(variables["CUDA_VISIBLE_DEVICES"], "0,1");
  EXPECT_EQ(variables["ACCELERATE_USE_CPU"], "True");
  EXPECT_EQ(variables["OMP_NUM_THREADS"], "2");
  EXPECT_THAT(plan.guesses, ElementsAre("--num_cpu_threads_per_process 2"));

  LaunchRequest flags = request();
  flags.num_processes = 5;
  flags.mixed_precision = MixedPrecision::kFp16;
  flags.main_process_port = 99;
  flags.gpu_ids = "all";
  flags.num_cpu_threads_per_process = 7;
  plan = plan_launch(flags, file, machine(8, 6));
  EXPECT_EQ(plan.world, 5);
  EXPECT_EQ(plan.master_port, 99);
  variables = as_map(plan.variables);
  EXPECT_EQ(variables["ACCELERATE_MIXED_PRECISION"], "fp16");
  EXPECT_EQ(variables.count("CUDA_VISIBLE_DEVICES"), 0U);
  EXPECT_EQ(variables["OMP_NUM_THREADS"], "7");
  EXPECT_THAT(plan.guesses, IsEmpty());
}

TEST(LaunchPlan, LeavesTheUsersThreadsAlone) {
  const LaunchPlan plan =
      plan_launch(request(), std::nullopt, machine(0, 8, {{"OMP_NUM_THREADS", "3"}}));
  EXPECT_EQ(as_map(plan.variables)["OMP_NUM_THREADS"], "3");
}

TEST(LaunchPlan, CountsProcessesByTheGpusThatAreNamed) {
  LaunchRequest flags = request();
  flags.gpu_ids = "2,3,5";
  EXPECT_EQ(plan_launch(flags, std::nullopt, machine(8, 8)).world, 3);
}

TEST(LaunchPlan, HandsOnTheCompilerOfTheConfig) {
  const auto file = config(
      "distributed_type: 'NO'\ndynamo_config:\n  dynamo_backend: inductor\n"
      "  dynamo_use_dynamic: true\n");
  auto variables = as_map(plan_launch(request(), file, machine(0, 1)).variables);
  EXPECT_EQ(variables["ACCELERATE_DYNAMO_BACKEND"], "INDUCTOR");
  EXPECT_EQ(variables["ACCELERATE_DYNAMO_MODE"], "default");
  EXPECT_EQ(variables["ACCELERATE_DYNAMO_USE_DYNAMIC"], "True");
  EXPECT_EQ(variables["ACCELERATE_DYNAMO_USE_FULLGRAPH"], "False");
}

TEST(LaunchPlan, StartsPythonForAScriptAndAModuleAlone) {
  LaunchRequest flags = request({"train.py", "--lr", "1"});
  EXPECT_THAT(plan_launch(flags, std::nullopt, machine(0, 1)).command,
              ElementsAre("python3", "-u", "train.py", "--lr", "1"));
  flags.no_python = true;
  EXPECT_THAT(plan_launch(flags, std::nullopt, machine(0, 1)).command,
              ElementsAre("train.py", "--lr", "1"));
  flags = request({"pkg.train", "-x"});
  flags.module = true;
  EXPECT_THAT(plan_launch(flags, std::nullopt, machine(0, 1, {{"PYTHON_EXEC", "/opt/py"}})).command,
              ElementsAre("/opt/py", "-u", "-m", "pkg.train", "-x"));
  EXPECT_THAT(plan_launch(request({"a.out"}), std::nullopt, machine(0, 1)).command,
              ElementsAre("a.out"));
}

TEST(LaunchPlan, PinsThreadsOfIntelsOpenMpOnlyWhereRanksDoNotCollide) {
  LaunchRequest flags = request();
  flags.cpu = true;
  EXPECT_EQ(as_map(plan_launch(flags, std::nullopt, machine(0, 4)).variables).count("KMP_AFFINITY"),
            1U);
  flags.num_processes = 2;
  EXPECT_EQ(as_map(plan_launch(flags, std::nullopt, machine(0, 4)).variables).count("KMP_AFFINITY"),
            0U);
  flags.enable_cpu_affinity = true;
  EXPECT_EQ(as_map(plan_launch(flags, std::nullopt, machine(0, 4)).variables).count("KMP_AFFINITY"),
            1U);
}

TEST(LaunchPlan, NumbersRanksOverMachines) {
  LaunchRequest flags = request();
  flags.num_processes = 6;
  flags.num_machines = 2;
  flags.machine_rank = 1;
  flags.main_process_ip = "10.0.0.1";
  flags.main_process_port = 29500;
  const LaunchPlan plan = plan_launch(flags, std::nullopt, machine(0, 4));
  EXPECT_EQ(plan.local_world, 3);
  auto variables = as_map(rank_variables(plan, 2, 29500, 1, 4));
  EXPECT_EQ(variables["RANK"], "5");
  EXPECT_EQ(variables["LOCAL_RANK"], "2");
  EXPECT_EQ(variables["WORLD_SIZE"], "6");
  EXPECT_EQ(variables["LOCAL_WORLD_SIZE"], "3");
  EXPECT_EQ(variables["GROUP_RANK"], "1");
  EXPECT_EQ(variables["GROUP_WORLD_SIZE"], "2");
  EXPECT_EQ(variables["MASTER_ADDR"], "10.0.0.1");
  EXPECT_EQ(variables["MASTER_PORT"], "29500");
  EXPECT_EQ(variables["TORCHELASTIC_RESTART_COUNT"], "1");
  EXPECT_EQ(variables["TORCHELASTIC_MAX_RESTARTS"], "4");
}

TEST(LaunchPlan, RefusesWhatContradictsItself) {
  LaunchRequest flags = request();
  flags.cpu = flags.multi_gpu = true;
  expect_usage(flags, std::nullopt, "--cpu and --multi_gpu");
  flags = request();
  flags.multi_gpu = true;
  flags.num_processes = 1;
  expect_usage(flags, std::nullopt, "at least 2 processes");
  flags.num_processes = 2;
  flags.gpu_ids = "3";
  expect_usage(flags, std::nullopt, "is one GPU");
  flags = request();
  flags.module = flags.no_python = true;
  expect_usage(flags, std::nullopt, "--module and --no_python");
  flags = request();
  flags.gpu_ids = "0,,1";
  expect_usage(flags, std::nullopt, "names no GPUs");
  expect_usage(request(), config("distributed_type: MULTI_CPU\n"), "number of processes open");
  expect_usage(request({}), std::nullopt, "no program");
}

TEST(LaunchPlan, SeveralMachinesNeedAnAddressAPortARankAndEqualShares) {
  LaunchRequest flags = request();
  flags.num_machines = 2;
  flags.num_processes = 4;
  expect_usage(flags, std::nullopt, "--main_process_ip");
  flags.main_process_ip = "10.0.0.1";
  expect_usage(flags, std::nullopt, "--main_process_port");
  flags.main_process_port = 29500;
  expect_usage(flags, std::nullopt, "--machine_rank");
  flags.machine_rank = 2;
  expect_usage(flags, std::nullopt, "--machine_rank 2 with 2 machines");
  flags.machine_rank = 1;
  flags.num_processes = 3;
  expect_usage(flags, std::nullopt, "cannot be shared equally");
  flags = request();
  flags.machine_rank = 1;
  expect_usage(flags, std::nullopt, "with one machine");
}

TEST(LaunchPlan, SaysWhatItDoesNotLaunch) {
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("FSDP"), [] {
    plan_launch(request(), config("distributed_type: FSDP\nnum_processes: 2\n"), machine(2, 2));
  });
}

}  // namespace
}  // namespace haul::core
