#include "core/launch/launch_config.h"

#include <gtest/gtest.h>

#include "core/base/file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LaunchConfig parse(const std::string& text) {
  return parse_launch_config(text, false, "f.yaml");
}

void expect_refused(const std::string& text, const testing::Matcher<const std::string&>& message) {
  SCOPED_TRACE(text);
  test::expect_error(ErrorKind::kCorrupt, AllOf(HasSubstr("f.yaml"), message),
                     [&] { parse(text); });
}

TEST(LaunchConfig, ReadsThePeersKeys) {
  const LaunchConfig config = parse(
      "compute_environment: LOCAL_MACHINE\n"
      "debug: true\n"
      "distributed_type: MULTI_GPU\n"
      "downcast_bf16: 'no'\n"
      "enable_cpu_affinity: yes\n"
      "gpu_ids: 0,1\n"
      "machine_rank: 1\n"
      "main_process_ip: 10.0.0.1\n"
      "main_process_port: 29501\n"
      "main_training_function: main\n"
      "mixed_precision: bf16\n"
      "num_machines: 2\n"
      "num_processes: 4\n"
      "rdzv_backend: c10d\n"
      "same_network: true\n"
      "tpu_env: []\n"
      "use_cpu: false\n");
  EXPECT_EQ(config.distributed_type, DistributedType::kMultiGpu);
  EXPECT_TRUE(config.debug);
  EXPECT_TRUE(config.enable_cpu_affinity);
  EXPECT_EQ(config.gpu_ids, "0,1");
  EXPECT_EQ(config.machine_rank, 1);
  EXPECT_EQ(config.main_process_ip, "10.0.0.1");
  EXPECT_EQ(config.main_process_port, 29501);
  EXPECT_EQ(config.mixed_precision, MixedPrecision::kBf16);
  EXPECT_EQ(config.num_machines, 2);
  EXPECT_EQ(config.num_processes, 4);
  EXPECT_EQ(config.rdzv_backend, "c10d");
  EXPECT_TRUE(config.same_network);
  EXPECT_FALSE(config.use_cpu);
}

TEST(LaunchConfig, HasThePeersDefaults) {
  EXPECT_EQ(parse("distributed_type: 'NO'").num_processes, 1);
  EXPECT_EQ(parse("distributed_type: MULTI_CPU").num_processes, -1);
  EXPECT_EQ(parse("distributed_type: NO").mixed_precision, std::nullopt);
  EXPECT_EQ(parse("distributed_type: NO\nmixed_precision: no").mixed_precision,
            MixedPrecision::kNo);
  EXPECT_EQ(parse("distributed_type: NO\nfp16: true").mixed_precision, MixedPrecision::kFp16);
  EXPECT_EQ(parse("distributed_type: NO\ngpu_ids: 0").gpu_ids, "0");
  EXPECT_EQ(parse("distributed_type: NO\ngpu_ids: null").gpu_ids, std::nullopt);
}

TEST(LaunchConfig, KeepsSectionsThatDoNotConcernIt) {
  const std::string text =
      "compute_environment: LOCAL_MACHINE\n"
      "debug: false\n"
      "deepspeed_config:\n"
      "  zero_stage: 3\n"
      "  offload: none\n"
      "distributed_type: DEEPSPEED\n"
      "enable_cpu_affinity: false\n"
      "fsdp_config: {}\n"
      "machine_rank: 0\n"
      "main_training_function: main\n"
      "num_machines: 1\n"
      "num_processes: 8\n"
      "rdzv_backend: static\n"
      "same_network: true\n"
      "tpu_env:\n"
      "  - A=1\n"
      "use_cpu: false\n";
  std::string expected = text;
  expected.replace(expected.find("A=1"), 3, "\"A=1\"");
  EXPECT_EQ(write_launch_config(parse(text), false), expected);
}

TEST(LaunchConfig, NamesAllUnknownKeysAndTheFile) {
  expect_refused("distributed_type: 'NO'\nzebra: 1\nfoo: 2\nbar:\n",
                 HasSubstr("unknown keys: 'bar', 'foo', 'zebra'"));
}

TEST(LaunchConfig, RefusesWrongTypesAndNamesTheLine) {
  expect_refused("distributed_type: 'NO'\nuse_cpu: maybe",
                 HasSubstr("line 2: use_cpu is 'maybe', expected true or false"));
  expect_refused("distributed_type: 'NO'\nuse_cpu: 'yes'", HasSubstr("expected true or false"));
  expect_refused("distributed_type: 'NO'\nnum_processes: two", HasSubstr("a number from -1"));
  expect_refused("distributed_type: 'NO'\nnum_processes: 0", HasSubstr("at least 1"));
  expect_refused("distributed_type: 'NO'\nmain_process_port: 65536", HasSubstr("from 0 to 65535"));
  expect_refused("distributed_type: 'NO'\ngpu_ids: [0, 1]", HasSubstr("gpu_ids is a list"));
  expect_refused("distributed_type: 'NO'\nmixed_precision: int8",
                 HasSubstr("no, fp16, bf16 or fp8"));
  expect_refused("distributed_type: MANY", HasSubstr("distributed_type is 'MANY'"));
  expect_refused("use_cpu: true", HasSubstr("distributed_type is missing"));
  expect_refused("compute_environment: MOON\ndistributed_type: 'NO'", HasSubstr("MOON"));
  expect_refused("", HasSubstr("holds no settings"));
  expect_refused("- a", HasSubstr("holds no settings"));
}

TEST(LaunchConfig, SaysThatItLaunchesOnNoCloud) {
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("AMAZON_SAGEMAKER"),
                     [] { parse("compute_environment: AMAZON_SAGEMAKER\n"); });
}

TEST(LaunchConfig, IsJsonInAFileNamedSo) {
  const test::TemporaryFolder folder;
  LaunchConfig config = parse("distributed_type: MULTI_CPU\nnum_processes: 3\n");
  config.gpu_ids = "0,1";
  write_launch_config(config, folder.path() / "new/folder/c.json");
  const std::string text = read_file(folder.path() / "new/folder/c.json", kMiB);
  EXPECT_TRUE(text.starts_with("{\n  \"compute_environment\": \"LOCAL_MACHINE\"")) << text;
  const LaunchConfig again = read_launch_config(folder.path() / "new/folder/c.json");
  EXPECT_EQ(again.num_processes, 3);
  EXPECT_EQ(again.gpu_ids, "0,1");
}

TEST(LaunchConfig, AMissingFileIsNamed) {
  test::expect_error(ErrorKind::kNotFound, HasSubstr("/nowhere/c.yaml"),
                     [] { read_launch_config("/nowhere/c.yaml"); });
}

}  // namespace
}  // namespace haul::core
