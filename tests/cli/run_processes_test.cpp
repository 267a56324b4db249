// `haul run` over several processes, as a person runs it.

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/live_process.h"
#include "tests/support/temporary_folder.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;
using test::Finished;
using ::testing::HasSubstr;
using ::testing::Not;

class RunProcesses : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TemporaryFolder;
    const Finished made = test::run_process({HAUL_WRITE_TINY_CHAT, folder_->path()});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    std::string lines;
    for (int i = 0; i < 11; ++i)
      lines += std::string(1 + i * 5 % 7, 'a') + std::to_string(i) + "\n";
    folder_->write("lines.txt", lines);
    folder_->write("one.txt", "just one");
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string path(const std::string& name = {}) { return folder_->path() / name; }
  static std::vector<std::string> on_lines(std::vector<std::string> more) {
    std::vector<std::string> all{"run", path(), "--file", path("lines.txt"), "--lines"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string answers(const std::vector<std::string>& arguments) {
    const Finished done = test::run_haul(arguments);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.out;
  }

  // More than are answered before somebody acts.
  static void write_many() {
    std::string lines;
    for (int i = 0; i < 2000; ++i) lines += "prompt " + std::to_string(i) + "\n";
    folder_->write("many.txt", lines);
  }

  static test::TemporaryFolder* folder_;
};
test::TemporaryFolder* RunProcesses::folder_ = nullptr;

TEST_F(RunProcesses, GiveWhatOneGives) {
  for (const char* const batch : {"1", "3"}) {
    const std::string one = answers(on_lines({"--batch", batch}));
    for (const char* const processes : {"2", "3", "4"}) {
      SCOPED_TRACE(std::string(processes) + " processes, batch " + batch);
      EXPECT_EQ(answers(on_lines({"--batch", batch, "--num-processes", processes})), one);
    }
  }
}

TEST_F(RunProcesses, GiveWhatOneGivesByChance) {
  const std::vector<std::string> chance{"--temperature", "0.9", "--seed", "7", "--batch", "2"};
  std::vector<std::string> many = chance;
  many.insert(many.end(), {"--num_processes", "3"});
  EXPECT_EQ(answers(on_lines(many)), answers(on_lines(chance)));
}

TEST_F(RunProcesses, TellTheSameInJson) {
  const auto parsed = [&](const std::string& text) {
    std::vector<nlohmann::json> result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json json = nlohmann::json::parse(line);
      json.erase("stats");
      result.push_back(std::move(json));
    }
    return result;
  };
  const auto one = parsed(answers(on_lines({"--json"})));
  EXPECT_EQ(one.size(), 11U);
  EXPECT_EQ(parsed(answers(on_lines({"--json", "--num-processes", "2"}))), one);
}

TEST_F(RunProcesses, ShareOtherTasksToo) {
  const std::vector<std::string> embed{"--task", "embed", "--json"};
  std::vector<std::string> many = embed;
  many.insert(many.end(), {"--num-processes", "3"});
  EXPECT_EQ(answers(on_lines(many)), answers(on_lines(embed)));
}

TEST_F(RunProcesses, WithAStageOfTheModelEachGiveWhatOneGives) {
  for (const char* const batch : {"1", "3"}) {
    const std::string one = answers(on_lines({"--batch", batch}));
    EXPECT_EQ(answers(on_lines({"--batch", batch, "--pipeline", "2"})), one);
  }
  const std::vector<std::string> single{"run", path(), "--prompt", "hello"};
  std::vector<std::string> many = single;
  many.insert(many.end(), {"--pipeline", "2"});
  EXPECT_EQ(answers(many), answers(single));
  // The model has two layers.
  const Finished done = test::run_haul(on_lines({"--pipeline", "3"}));
  EXPECT_EQ(done.exit_code, 2) << done.err;
  EXPECT_THAT(done.err, HasSubstr("3 stages, and the model has 2 blocks"));
}

TEST_F(RunProcesses, WithAPartOfEveryLayerEachGiveWhatOneGives) {
  for (const char* const batch : {"1", "3"}) {
    const std::string one = answers(on_lines({"--batch", batch}));
    EXPECT_EQ(answers(on_lines({"--batch", batch, "--tensor-parallel", "2"})), one);
  }
  const std::vector<std::string> single{"run", path(), "--prompt", "hello"};
  std::vector<std::string> many = single;
  many.insert(many.end(), {"--tensor_parallel", "2"});
  EXPECT_EQ(answers(many), answers(single));
  std::vector<std::string> launched{"launch", "--num_processes", "2", "--cpu", HAUL_COMMAND};
  launched.insert(launched.end(), many.begin(), many.end());
  EXPECT_EQ(answers(launched), answers(single));
}

TEST_F(RunProcesses, SayWhyTheyCannotShareLayers) {
  const auto expect_refused = [](const std::vector<std::string>& flags, const char* why) {
    const Finished done = test::run_haul(on_lines(flags));
    EXPECT_EQ(done.exit_code, 2) << done.err;
    EXPECT_THAT(done.err, HasSubstr(why));
    EXPECT_EQ(done.out, "");
  };
  expect_refused({"--tensor-parallel", "3"}, "3 processes cannot share the 4 heads, 2 kv heads");
  expect_refused({"--tensor-parallel", "2", "--pipeline", "2"}, "exclude each other");
  expect_refused({"--tensor-parallel", "2", "--num-processes", "2"}, "exclude each other");
  expect_refused({"--tensor-parallel", "2", "--task", "embed"}, "prompts that are continued");
}

TEST_F(RunProcesses, MayBeStartedByTheLauncher) {
  std::vector<std::string> launched{"launch", "--num_processes", "3", "--cpu", HAUL_COMMAND};
  for (const std::string& word : on_lines({})) launched.push_back(word);
  EXPECT_EQ(answers(launched), answers(on_lines({})));
}

TEST_F(RunProcesses, ReadAPipeOnce) {
  test::LiveProcess haul({HAUL_COMMAND, "run", path(), "--lines", "--num-processes", "2"});
  std::ifstream file(path("lines.txt"));
  std::stringstream text;
  text << file.rdbuf();
  haul.write(text.str());
  haul.close_input();
  const Finished done = haul.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, answers(on_lines({})));
}

TEST_F(RunProcesses, MayBeMoreThanThePrompts) {
  const std::vector<std::string> one{"run", path(), "--file", path("one.txt")};
  std::vector<std::string> many = one;
  many.insert(many.end(), {"--num-processes", "3"});
  EXPECT_EQ(answers(many), answers(one));
}

TEST_F(RunProcesses, TellThePlanAndTheFiguresOnce) {
  const Finished done = test::run_haul(on_lines({"--num-processes", "3"}));
  const auto times = [&](const std::string& what) {
    int count = 0;
    for (std::size_t at = done.err.find(what); at != done.err.npos;
         at = done.err.find(what, at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(times("11 of 11 prompts in"), 1) << done.err;
  EXPECT_EQ(times("first token"), 1) << done.err;
  EXPECT_THAT(done.err, Not(HasSubstr("guessed")));
}

TEST_F(RunProcesses, NeedPromptsToShare) {
  for (const std::vector<std::string>& one :
       {std::vector<std::string>{"--prompt", "a"}, {"--ids", "1,2"}, {"--chat"}}) {
    std::vector<std::string> arguments{"run", path(), "--num-processes", "2"};
    arguments.insert(arguments.end(), one.begin(), one.end());
    const Finished done = test::run_haul(arguments);
    EXPECT_EQ(done.exit_code, 2) << done.err;
    EXPECT_THAT(done.err, HasSubstr("2 processes share the prompts of a file"));
  }
}

TEST_F(RunProcesses, EndWithTheLineThatCannotBeAnswered) {
  folder_->write("long.txt", "short\n" + std::string(600, 'x') + "\nshort\n");
  const Finished done = test::run_haul(
      {"run", path(), "--file", path("long.txt"), "--lines", "--num-processes", "2"});
  EXPECT_EQ(done.exit_code, 2) << done.err;
  EXPECT_THAT(done.err, HasSubstr("long.txt:2"));
  EXPECT_THAT(done.out, "");
}

TEST_F(RunProcesses, SayOnceThatThereIsNoFile) {
  const Finished done =
      test::run_haul({"run", path(), "--file", "/no/such/file", "--lines", "--num-processes", "2"});
  EXPECT_EQ(done.exit_code, 1) << done.err;
  EXPECT_THAT(done.err, HasSubstr("/no/such/file"));
  EXPECT_THAT(done.err, Not(HasSubstr("rank")));
}

// The children of a process.
std::vector<pid_t> children(pid_t parent) {
  const std::string name = std::to_string(parent);
  std::ifstream file("/proc/" + name + "/task/" + name + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}
bool is_rank(pid_t process, const char* number) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  std::stringstream text;
  text << file.rdbuf();
  const std::string variables = std::string(1, '\0') + text.str();
  return variables.find(std::string("\0RANK=", 6) + number + '\0') != std::string::npos;
}

TEST_F(RunProcesses, EndWithOneThatIsKilled) {
  write_many();
  const std::vector<std::array<const char*, 3>> cases{{"--num-processes", "3", "0"},
                                                      {"--num-processes", "3", "1"},
                                                      {"--num-processes", "3", "2"},
                                                      {"--tensor-parallel", "2", "0"},
                                                      {"--tensor-parallel", "2", "1"}};
  for (const auto& [flag, processes, number] : cases) {
    SCOPED_TRACE(std::string(flag) + " " + number);
    test::LiveProcess haul({HAUL_COMMAND, "run", path(), "--file", path("many.txt"), "--lines",
                            flag, processes, "--max-new-tokens", "100"});
    haul.line();  // all have begun, or will
    pid_t killed = -1;
    for (const pid_t child : children(haul.pid())) {
      if (is_rank(child, number)) killed = child;
    }
    ASSERT_GT(killed, 0);
    ::kill(killed, SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const Finished done = haul.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(done.exit_code, 128 + SIGKILL) << done.err;
    EXPECT_THAT(done.err, HasSubstr(std::string("rank ") + number));
  }
}

TEST_F(RunProcesses, ShowWhatThereIsWhenInterrupted) {
  write_many();
  test::LiveProcess haul({HAUL_COMMAND, "run", path(), "--file", path("many.txt"), "--lines",
                          "--num-processes", "2", "--max-new-tokens", "50"});
  haul.line();
  haul.send(SIGINT);
  const Finished done = haul.wait();
  EXPECT_EQ(done.exit_code, 128 + SIGINT) << done.err;
  EXPECT_THAT(done.err, HasSubstr("of 2000 prompts in"));
}

}  // namespace
}  // namespace haul::cli
