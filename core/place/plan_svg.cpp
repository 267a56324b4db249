#include "core/place/plan_svg.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/place/words.h"

namespace haul::core {
namespace {

constexpr int kWidth = 960;
constexpr int kLeft = 110;
constexpr int kBar = 640;
constexpr int kRow = 58;
constexpr int kTop = 96;

struct Part {
  const char* name;
  const char* colour;
  Bytes PlanDevice::*bytes;
};
constexpr std::array<Part, 5> kParts{{{"weights", "#2f6fb7", &PlanDevice::weights},
                                      {"KV cache", "#e08a2e", &PlanDevice::kv},
                                      {"activations", "#4f9d5d", &PlanDevice::activations},
                                      {"driver", "#8a8f98", &PlanDevice::context},
                                      {"slots", "#a65fb3", &PlanDevice::slots}}};

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

std::string text(int x, int y, int size, std::string_view style, std::string_view words) {
  return fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" {}>{}</text>\n", x, y, size, style,
                     escaped(words));
}

std::string rectangle(double x, int y, double width, int height, std::string_view style) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" {}/>\n", x, y,
                     width, height, style);
}

std::string bar(const PlanDevice& device, int y) {
  const Bytes whole = std::max(device.budget.value_or(device.used()), device.used());
  const double scale = whole > 0 ? static_cast<double>(kBar) / static_cast<double>(whole) : 0;
  std::string out = text(kLeft - 14, y + 22, 17, "text-anchor=\"end\" font-weight=\"600\"",
                         device_words(device.device));
  out += rectangle(kLeft, y, kBar, 32, "rx=\"4\" fill=\"#eceff3\"");
  double x = kLeft;
  for (const Part& part : kParts) {
    const double width = static_cast<double>(device.*part.bytes) * scale;
    if (width < 0.5) continue;
    out += rectangle(x, y, width, 32, fmt::format("fill=\"{}\"", part.colour));
    if (width > 90) {
      out += text(static_cast<int>(x + width / 2), y + 21, 13,
                  "text-anchor=\"middle\" fill=\"#fff\"", format_bytes(device.*part.bytes));
    }
    x += width;
  }
  const std::string words = device.budget ? fmt::format("{} of {}", format_bytes(device.used()),
                                                        format_bytes(*device.budget))
                                          : format_bytes(device.used());
  return out + text(kLeft + kBar + 12, y + 21, 13, "fill=\"#475060\"", words);
}

std::string legend(int y) {
  std::string out;
  int x = kLeft;
  for (const Part& part : kParts) {
    out += rectangle(x, y, 14, 14, fmt::format("rx=\"3\" fill=\"{}\"", part.colour));
    out += text(x + 20, y + 12, 13, "fill=\"#475060\"", part.name);
    x += 118;
  }
  return out;
}

std::string figure(int x, int y, std::string_view title, const std::string& value,
                   const std::string& limit) {
  return text(x, y, 13, "fill=\"#475060\"", title) +
         text(x, y + 26, 22, "font-weight=\"600\"", value) +
         text(x, y + 46, 12, "fill=\"#7a8494\"", limit.empty() ? "" : "limited by " + limit);
}

// The end of a long path, in whole characters.
std::string title(const std::string& model) {
  constexpr std::size_t kMost = 60;
  if (model.empty()) return "plan";
  if (model.size() <= kMost) return model;
  std::size_t begin = model.size() - kMost;
  while (begin < model.size() && (static_cast<unsigned char>(model[begin]) & 0xC0) == 0x80) ++begin;
  return "…" + model.substr(begin);
}

}  // namespace

std::string plan_svg(const Plan& plan) {
  const int bars = static_cast<int>(plan.devices.size());
  const int height = kTop + bars * kRow + 150;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" "
      "fill=\"#1c2430\">\n",
      kWidth, height);
  out += rectangle(0, 0, kWidth, height, "fill=\"#ffffff\"");
  out += text(28, 42, 24, "font-weight=\"700\"", title(plan.model));
  std::string request = fmt::format("{}, batch {}", to_string(plan.mode), plan.batch);
  if (plan.context) request += fmt::format(", context {}", *plan.context);
  out += text(28, 68, 15, "fill=\"#475060\"", plan.fits ? request : request + ": does not fit");
  int y = kTop;
  for (const PlanDevice& device : plan.devices) {
    out += bar(device, y);
    y += kRow;
  }
  out += legend(y + 4);
  if (plan.fits) {
    out += figure(kLeft, y + 60, "load", seconds_words(plan.load.seconds), plan.load.limit);
    if (plan.first_token) {
      out += figure(kLeft + 230, y + 60, "first token", seconds_words(plan.first_token->seconds),
                    plan.first_token->limit);
    }
    out += figure(kLeft + 460, y + 60, "tokens a second", rate_words(plan.tokens_per_second()),
                  plan.token.limit);
  } else if (!plan.changes.empty()) {
    out += figure(kLeft, y + 60, "it would fit with", plan.changes.front(), "");
  }
  return out + "</svg>\n";
}

}  // namespace haul::core
