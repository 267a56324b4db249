#include "output.h"

#include <cmath>
#include <iostream>
#include <map>
#include <vector>

#include <nlohmann/json.hpp>

struct Output::Lists {
  std::vector<haul::TokenId> prompt_ids;
  std::vector<haul::TokenId> ids;
  std::vector<float> logits;
};

Output::Output(const haul::Tokenizer& tokenizer, bool json)
    : lists_(std::make_unique<Lists>()),
      decoder_(tokenizer.stream(/*skip_special_tokens=*/true)),
      json_(json) {}

Output::~Output() = default;

void Output::say(const std::string& piece) {
  text_ += piece;
  if (!json_) std::cout << piece << std::flush;
}

void Output::take_prompt(haul::TokenId id) {
  lists_->prompt_ids.push_back(id);
  say(decoder_.push(id));
}

void Output::take_new(haul::TokenId id, float logit) {
  lists_->ids.push_back(id);
  lists_->logits.push_back(logit);
  say(decoder_.push(id));
}

void Output::finish() {
  say(decoder_.finish());
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (json_) {
    const nlohmann::ordered_json result = {{"prompt_ids", lists_->prompt_ids},
                                           {"ids", lists_->ids},
                                           {"logits", lists_->logits},
                                           {"text", text_}};
    std::cout << result.dump();
  }
  std::cout << std::endl;
}

namespace {

double rounded(double seconds) {
  return std::round(seconds * 1000) / 1000;
}

}  // namespace

void Output::tell_report(const haul::DispatchReport& report) const {
  std::cerr << "mingpt: " << lists_->ids.size() << " tokens in " << rounded(seconds_) << " s\n";
  for (const haul::TierUse& tier : report.tiers) {
    std::cerr << "mingpt: " << tier.tier << ": " << haul::format_bytes(tier.planned) << " planned, "
              << haul::format_bytes(tier.peak) << " at the peak\n";
  }
  std::cerr << "mingpt: moved " << haul::format_bytes(report.bytes_moved)
            << "; offloaded weights were used " << report.leases << " times, " << report.hits
            << " times there at once; waited " << rounded(report.wait_seconds) << " s\n";
}

void tell_map(const haul::DeviceMap& map) {
  std::map<haul::Device, std::size_t> entries;
  for (const auto& [name, device] : map) ++entries[device];
  std::cerr << "mingpt: device map:";
  const char* separator = " ";
  for (const auto& [device, count] : entries) {
    std::cerr << separator << count << " on " << haul::to_string(device);
    separator = ", ";
  }
  std::cerr << '\n';
}
