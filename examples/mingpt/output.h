#pragma once

// What the program says: the text or JSON on stdout, everything else on stderr.

#include <chrono>
#include <memory>
#include <string>

#include <haul/device_map.h>
#include <haul/tokenizer.h>
#include <haul/torch/dispatch.h>

class Output {
 public:
  // The tokenizer must live as long. Text appears as its tokens come, JSON at the end.
  Output(const haul::Tokenizer& tokenizer, bool json);
  ~Output();

  void take_prompt(haul::TokenId id);
  void take_new(haul::TokenId id, float logit);
  void finish();

  // How many tokens came how fast, and what the dispatched model held and moved for them.
  void tell_report(const haul::DispatchReport& report) const;

 private:
  void say(const std::string& piece);

  struct Lists;  // as the JSON shows them
  std::unique_ptr<Lists> lists_;
  haul::StreamDecoder decoder_;
  std::string text_;
  bool json_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double seconds_ = 0;
};

void tell_map(const haul::DeviceMap& map);
