#include <algorithm>

#include "core/describe/describe.h"
#include "models/families/model.h"
#include "tests/support/expect_error.h"

namespace haul::models {
namespace {

using testing::HasSubstr;

std::shared_ptr<Model> make(const std::string& config) {
  const core::Json json = core::parse_json(config, "config.json");
  const Description description = core::describe_config(json, "config.json");
  return make_model(core::ConfigReader(json, "config.json"), description);
}

// A config of the architecture, small, with the names that all families know among theirs.
std::string small(const std::string& architecture, const std::string& type,
                  const std::string& more = "") {
  return R"({"architectures": [")" + architecture + R"("], "model_type": ")" + type + R"(", )" +
         more +
         R"("hidden_size": 32, "n_embd": 32, "d_model": 32, "num_hidden_layers": 2, "n_layer": 2,
            "num_layers": 2, "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "d_kv": 8,
            "head_dim": 8, "num_key_value_heads": 2, "intermediate_size": 48, "d_ff": 48,
            "vocab_size": 61})";
}

std::string type_of(const std::string& architecture) {
  for (const auto& [start, type] :
       {std::pair("Bert", "bert"), std::pair("Bloom", "bloom"), std::pair("GPT2", "gpt2"),
        std::pair("Llama", "llama"), std::pair("Mistral", "mistral"), std::pair("Qwen2", "qwen2"),
        std::pair("Qwen3", "qwen3"), std::pair("T5", "t5")}) {
    if (architecture.starts_with(start)) return type;
  }
  return "";
}

TEST(MakeModel, BuildsEveryArchitectureThatItSaysItKnows) {
  const auto known = known_architectures();
  EXPECT_GE(known.size(), 20U);
  for (const std::string_view name : known) {
    SCOPED_TRACE(name);
    const std::string architecture(name);
    const auto model = make(small(architecture, type_of(architecture)));
    ASSERT_NE(model, nullptr);
    EXPECT_FALSE(model->parameters().empty());
    EXPECT_EQ(std::count(known.begin(), known.end(), name), 1);
  }
}

TEST(MakeModel, AnArchitectureThatIsNotKnownSaysWhichAreAndWhatStillWorks) {
  const core::Json json = core::Json::object();
  Description description;
  description.architecture = "FrobnicateForCausalLM";
  try {
    make_model(core::ConfigReader(json, "config.json"), description);
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("FrobnicateForCausalLM"));
    for (const std::string_view known : known_architectures()) {
      EXPECT_THAT(error.hint(), HasSubstr(std::string(known)));
    }
    EXPECT_THAT(error.hint(), HasSubstr("estimate"));
    EXPECT_THAT(error.hint(), HasSubstr("plan"));
  }
}

TEST(MakeModel, AChoiceThatItCannotComputeIsNamed) {
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("decoder"),
                     [] { make(small("BertModel", "bert", R"("is_decoder": true, )")); });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("cross attention"), [] {
    make(small("GPT2LMHeadModel", "gpt2", R"("add_cross_attention": true, )"));
  });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("swoosh"), [] {
    make(small("LlamaForCausalLM", "llama", R"("hidden_act": "swoosh", )"));
  });
  test::expect_error(ErrorKind::kUnsupported, HasSubstr("spiral"), [] {
    make(small("LlamaForCausalLM", "llama", R"("rope_scaling": {"rope_type": "spiral"}, )"));
  });
}

TEST(MakeModel, LayersLookAtTheWindowsOfTheirConfig) {
  const std::string window = R"("sliding_window": 7, )";
  EXPECT_THAT(make(small("MistralForCausalLM", "mistral", window))->windows(),
              testing::ElementsAre(7, 7));
  EXPECT_THAT(make(small("LlamaForCausalLM", "llama", window))->windows(),
              testing::Each(testing::Eq(0)));
  EXPECT_THAT(make(small("Qwen2ForCausalLM", "qwen2",
                         window + R"("use_sliding_window": true, "max_window_layers": 1, )"))
                  ->windows(),
              testing::ElementsAre(0, 7));
  EXPECT_THAT(
      make(small("Qwen2ForCausalLM", "qwen2",
                 window + R"("use_sliding_window": true, "layer_types": ["sliding_attention",
                                                                         "full_attention"], )"))
          ->windows(),
      testing::ElementsAre(7, 0));
}

TEST(MakeModel, LayerTypesThatDoNotFitTheLayersAreAnErrorThatNamesThem) {
  for (const char* types : {R"(["sliding_attention"])", R"("sliding_attention")"}) {
    test::expect_error(ErrorKind::kCorrupt, HasSubstr("layer_types"), [&] {
      make(
          small("Qwen2ForCausalLM", "qwen2",
                std::string(R"("sliding_window": 7, "use_sliding_window": true, "layer_types": )") +
                    types + ", "));
    });
  }
}

TEST(MakeModel, ALayerTypeThatIsNotKnownIsAnErrorThatNamesItAndTheKnown) {
  for (const auto& [name, type] :
       {std::pair("LlamaForCausalLM", "llama"), std::pair("MistralForCausalLM", "mistral"),
        std::pair("Qwen2ForCausalLM", "qwen2")}) {
    for (const char* entry : {R"("chunked_attention")", "null", "7"}) {
      SCOPED_TRACE(entry);
      const std::string types =
          std::string(R"("layer_types": ["full_attention", )") + entry + "], ";
      try {
        make(small(name, type, types));
        FAIL() << "no error was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
        EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("layer_types"), HasSubstr(entry)));
        EXPECT_THAT(error.hint(),
                    testing::AllOf(HasSubstr("full_attention"), HasSubstr("sliding_attention")));
      }
    }
  }
}

TEST(MakeModel, OneWithoutAnEncoderCannotEncode) {
  const auto model = make(small("LlamaForCausalLM", "llama"));
  test::expect_error(ErrorKind::kInternal, HasSubstr("encode"), [&] { model->encode({}); });
}

}  // namespace
}  // namespace haul::models
