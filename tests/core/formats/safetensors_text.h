#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace haul::test {

// A safetensors file with this header, whatever it says, and this data.
inline std::string safetensors_file(std::string_view header, std::string_view data = {}) {
  std::string file;
  for (int i = 0; i < 8; ++i) {
    file.push_back(static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i)));
  }
  file += header;
  file += data;
  return file;
}

}  // namespace haul::test
