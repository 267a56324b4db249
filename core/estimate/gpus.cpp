// GPUs by memory, as sold. Their makers' GB are GiB. What is reserved: a little everywhere for the
// driver and the CUDA context, more where error correction lives in the same memory.

#include <array>
#include <cctype>
#include <string>

#include "haul/error.h"
#include "haul/fit.h"

namespace haul {
namespace {

constexpr std::array kGpus{
    Gpu{"RTX 3060 12GB", 12 * kGiB, 1 * kGiB}, Gpu{"T4 16GB", 16 * kGiB, 2 * kGiB},
    Gpu{"RTX 4080 16GB", 16 * kGiB, 1 * kGiB}, Gpu{"RTX 3090 24GB", 24 * kGiB, 1 * kGiB},
    Gpu{"RTX 4090 24GB", 24 * kGiB, 1 * kGiB}, Gpu{"L4 24GB", 24 * kGiB, 2 * kGiB},
    Gpu{"RTX 5090 32GB", 32 * kGiB, 1 * kGiB}, Gpu{"A100 40GB", 40 * kGiB, 1 * kGiB},
    Gpu{"L40S 48GB", 48 * kGiB, 4 * kGiB},     Gpu{"A100 80GB", 80 * kGiB, 1 * kGiB},
    Gpu{"H100 80GB", 80 * kGiB, 1 * kGiB},     Gpu{"RTX PRO 6000 96GB", 96 * kGiB, 2 * kGiB},
    Gpu{"H200 141GB", 141 * kGiB, 2 * kGiB},   Gpu{"B200 180GB", 180 * kGiB, 2 * kGiB},
};

std::string letters_and_digits(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) result += static_cast<char>(std::tolower(byte));
  }
  return result;
}

// "rtx409024gb" is meant by itself, by "rtx4090", by "4090" and by "409024gb".
bool is_meant(const Gpu& gpu, const std::string& wanted) {
  const std::string whole = letters_and_digits(gpu.name);
  const std::string model = letters_and_digits(gpu.name.substr(0, gpu.name.rfind(' ')));
  for (const std::string& name : {whole, model}) {
    if (name == wanted) return true;
    if (name.starts_with("rtx") && name.substr(3) == wanted) return true;
  }
  return false;
}

}  // namespace

std::span<const Gpu> known_gpus() {
  return kGpus;
}

const Gpu* find_gpu(std::string_view text) {
  const std::string wanted = letters_and_digits(text);
  const Gpu* found = nullptr;
  std::string names;
  for (const Gpu& gpu : kGpus) {
    if (!is_meant(gpu, wanted)) continue;
    if (found != nullptr) names += ", ";
    names += gpu.name;
    found = &gpu;
  }
  if (found == nullptr || found->name == names) return found;
  throw Error(ErrorKind::kUsage, "'" + std::string(text) + "' is more than one GPU",
              "write one of: " + names);
}

}  // namespace haul
