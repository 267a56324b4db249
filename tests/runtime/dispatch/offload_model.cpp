// offload_model CHECKPOINT FOLDER: loads linear layers as bf16 and all on disk, so that a file has
// to be written to the offload folder, runs them and prints what comes out. With a seed instead of
// a checkpoint the model has its values in memory. Options, for tests of what goes wrong:
//   --file-limit BYTES  no file may become larger
//   --as-nobody         gives up its rights first
//   --quit              ends without cleaning up

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <string_view>

#include <torch/utils.h>

#include "haul/error.h"
#include "haul/torch/dispatch.h"
#include "haul/torch/empty_weights.h"
#include "tests/runtime/dispatch/layers.h"

namespace {

void limit_files(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);  // the write fails then
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

void run(std::string_view checkpoint, const std::filesystem::path& folder, bool quit) {
  torch::nn::Sequential model{nullptr};
  std::uint64_t seed = 0;
  const char* const end = checkpoint.data() + checkpoint.size();
  if (std::from_chars(checkpoint.data(), end, seed).ptr == end) {
    model = haul::test::layers(seed);
    haul::disk_offload(model, folder);
  } else {
    {
      const haul::EmptyWeights scope;
      model = haul::test::layers(0);
    }
    haul::LoadOptions options;
    options.dtype = haul::Dtype::kBF16;
    options.offload_folder = folder;
    haul::load_checkpoint_in_model(model, checkpoint, haul::DeviceMap{{"", haul::kDiskDevice}},
                                   options);
  }
  std::printf("%.9g\n", haul::test::output_of(model));
  std::fflush(stdout);
  if (quit) ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  bool quit = false;
  for (int i = 3; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--file-limit" && i + 1 < argc)
      limit_files(std::strtoull(argv[++i], nullptr, 10));
    if (option == "--as-nobody" && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 3;
    quit |= option == "--quit";
  }
  if (argc < 3) return 2;
  try {
    run(argv[1], argv[2], quit);
  } catch (const haul::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
