#pragma once

// A hub with one small model and an empty cache, for tests.

#include <string>

#include <gtest/gtest.h>

#include "core/hub/hub_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/hub_server.h"
#include "tests/support/temporary_folder.h"

namespace haul::core {

inline constexpr const char* kTestModel = "org/tiny";

// A safetensors file with one F32 vector.
inline std::string one_tensor_file(const std::string& name, std::size_t elements) {
  std::string json = R"({")" + name + R"(":{"dtype":"F32","shape":[)" + std::to_string(elements) +
                     R"(],"data_offsets":[0,)" + std::to_string(elements * 4) + "]}}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(json.size() >> (8 * i));
  file += json;
  for (std::size_t i = 0; i < elements * 4; ++i) file += static_cast<char>(i * 31 + i / 256);
  return file;
}

class HubTest : public testing::Test {
 protected:
  HubTest() {
    test::ServedModel& model = server_.models[kTestModel];
    model.commit = std::string(40, 'c');
    model.files["config.json"] = {R"({"model_type": "gpt2"})", false};
    model.files["tokenizer.json"] = {"{}", false};
    model.files["model.safetensors"] = {one_tensor_file("w", 50'000), true};
  }

  test::ServedModel& model() { return server_.models[kTestModel]; }
  const std::string& weights() { return model().files["model.safetensors"].content; }

  HubSettings settings() const {
    HubSettings result;
    result.endpoint = parse_url(server_.endpoint());
    result.endpoint.target.clear();
    result.cache = folder_.path() / "hub";
    result.token = "hf_secret";
    result.first_wait = std::chrono::milliseconds(5);
    result.stall_timeout = std::chrono::seconds(1);
    return result;
  }

  ModelFiles resolve(Need need, const std::string& name = kTestModel) const {
    return HubModel(settings(), *parse_hub_name(name), "").resolve(need);
  }

  Snapshot download(const SnapshotOptions& options = {}) const {
    return HubModel(settings(), *parse_hub_name(kTestModel), options.revision).download(options);
  }

  std::filesystem::path cache(const std::string& path) const {
    return folder_.path() / "hub" / "models--org--tiny" / path;
  }

  test::TemporaryFolder folder_;
  test::HubServer server_;
};

}  // namespace haul::core
