#include "cli/torch/start_processes.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "haul/error.h"

namespace haul::cli {
namespace {

namespace fs = std::filesystem;

// Beside this executable in a build folder, in bin when installed.
fs::path haul() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path beside = folder / "haul";
  return fs::exists(beside) ? beside : folder.parent_path().parent_path() / "bin/haul";
}

}  // namespace

void start_processes(const std::vector<std::string>& flags,
                     const std::vector<std::string>& command) {
  const std::string path = haul();
  std::vector<std::string> words{path, "launch", "--no_python"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.push_back(path);
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(path.c_str(), arguments.data());
  throw Error(ErrorKind::kResource,
              fmt::format("{}: cannot start: {}", path, std::strerror(errno)));
}

}  // namespace haul::cli
