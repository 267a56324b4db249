// A program of yours that asks haul about a model: it prints the bytes of each tensor in a module
// tree, as `haul tree MODEL --json` writes one.

#include <fstream>
#include <iostream>
#include <iterator>

#include <haul/description.h>
#include <haul/error.h>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: embed TREE.json\n";
    return 2;
  }
  std::ifstream file(argv[1]);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  haul::Bytes total = 0;
  for (const haul::NamedTensor& tensor : haul::all_tensors(haul::read_tree(text, argv[1]))) {
    const haul::Bytes bytes = haul::byte_count(tensor.dtype, tensor.shape);
    std::cout << tensor.name << ": " << haul::format_bytes(bytes) << '\n';
    total += bytes;
  }
  std::cout << "total: " << total << '\n';
} catch (const haul::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
