#include "haul/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/place/plan_svg.h"
#include "tests/support/expect_error.h"
#include "tests/support/trees.h"

namespace haul {
namespace {

using test::expect_error;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

Plan make(const std::string& memory, Planner planner = Planner::kHaul) {
  const Description g = test::tree_g(true);
  PlanRequest request;
  request.planner = planner;
  request.model = "G <small> & tied";
  request.memory = parse_max_memory(memory);
  request.options.no_split = g.no_split;
  return make_plan(g, request, Profile{});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PlanFile, LoadsWhatWasSaved) {
  for (const char* memory : {"0=10000,1=10000", "0=6000,cpu=6000", "0=100,disk=0"}) {
    const Plan plan = make(memory);
    EXPECT_EQ(read_plan(write_plan(plan), "plan.json"), plan) << memory;
  }
  const Plan peer = make("0=6000,cpu=6000", Planner::kAccelerate);
  EXPECT_EQ(read_plan(write_plan(peer), "plan.json"), peer);
}

TEST(PlanFile, NoticesEditsByHand) {
  const std::string text = write_plan(make("0=10000,1=10000"));
  expect_error(ErrorKind::kCorrupt, HasSubstr("plan.json: plan: the file was edited"), [&] {
    read_plan(replaced(text, "\"fits\": true", "\"fits\": false"), "plan.json");
  });
}

TEST(PlanFile, RefusesOtherVersionsAndOtherFiles) {
  const std::string text = write_plan(make("0=10000"));
  expect_error(ErrorKind::kCorrupt, HasSubstr("version 1 expected, found 2"),
               [&] { read_plan(replaced(text, "\"version\": 1", "\"version\": 2"), "plan.json"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("this is no plan"),
               [] { read_plan(R"({"class": "Model"})", "tree.json"); });
  expect_error(ErrorKind::kCorrupt, HasSubstr("plan.json"), [] { read_plan("{", "plan.json"); });
}

TEST(PlanCompare, TellsWhatChanges) {
  const Plan before = make("0=6000,cpu=6000");
  const Plan after = make("0=20000");
  EXPECT_THAT(compare(before, before), IsEmpty());
  const auto lines = compare(before, after);
  EXPECT_THAT(lines, Contains(HasSubstr("times faster")));
  EXPECT_THAT(lines, Contains(HasSubstr("GPU 0: ")));
}

TEST(PlanExplain, HasASentenceForEachPlace) {
  const Plan plan = make("0=6000,cpu=6000");
  const auto sentences = explain(plan, Profile{});
  EXPECT_THAT(sentences, Contains(HasSubstr("on GPU 0")));
  EXPECT_THAT(sentences, Contains(HasSubstr("in RAM")));
  EXPECT_THAT(sentences, Contains(HasSubstr("on disk")));
  EXPECT_THAT(sentences, Contains(HasSubstr("decides")));
  for (const std::string& sentence : sentences) EXPECT_TRUE(sentence.ends_with('.')) << sentence;
  EXPECT_THAT(explain(make("0=100,disk=0"), Profile{}), Contains(HasSubstr("It would fit with")));
}

TEST(PlanSvg, EscapesNamesAndDrawsEachDevice) {
  const std::string svg = core::plan_svg(make("0=10000,1=10000"));
  EXPECT_THAT(svg, HasSubstr("G &lt;small&gt; &amp; tied"));
  EXPECT_THAT(svg, HasSubstr(">GPU 0<"));
  EXPECT_THAT(svg, HasSubstr(">GPU 1<"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(ProfileFile, LoadsWhatWasSaved) {
  Profile profile;
  profile.gpus[3] = {1e12, 2e10, 3e14, 2e-6, 300 * kMiB, kMiB};
  profile.disk_bandwidth = 7e9;
  profile.cpu_call = 1e-5;
  profile.cpu_by_input = 2e-5;
  profile.measured = true;
  EXPECT_EQ(read_profile(write_profile(profile), "profile.json"), profile);
  EXPECT_EQ(profile.of_gpu(3).link_bandwidth, 2e10);
  EXPECT_EQ(profile.of_gpu(0), profile.gpu);
}

TEST(ProfileFile, RefusesNonsense) {
  const auto refused = [](const std::string& text, const std::string& why) {
    expect_error(ErrorKind::kCorrupt, HasSubstr(why), [&] { read_profile(text, "profile.json"); });
  };
  refused("{}", "version 1 expected, found none");
  refused(R"({"version": 9})", "found 9");
  refused(R"({"version": 1, "disk_bandwidth": 0})", "\"disk_bandwidth\" is 0");
  refused(R"({"version": 1, "disk_bandwidth": -1})", "not a positive number");
  refused(R"({"version": 1, "cpu_call": -1})", "not a positive number");
  refused(R"({"version": 1, "gpus": {"x": {}}})", "not a device number");
  refused(R"({"version": 1, "gpu": {"speed": 1}})", "unexpected \"gpu.speed\"");
  refused(R"([1])", "JSON object");
}

}  // namespace
}  // namespace haul
