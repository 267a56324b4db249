#include "core/formats/torch_zip.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/formats/pickle.h"
#include "core/formats/torch_globals.h"
#include "core/formats/torch_names.h"
#include "core/formats/torch_tensor.h"
#include "core/formats/zip.h"
#include "haul/error.h"

namespace haul::core {
namespace {

// What torch.save wrote first before it wrote zip archives: a number, as a pickle holds it.
constexpr std::string_view kOldMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::size_t kOldMagicWithin = 32;
constexpr std::size_t kTarMagicAt = 257;

void check_kind_of_file(std::string_view text) {
  if (text.starts_with("PK")) return;
  if (text.substr(0, kOldMagicWithin).find(kOldMagic) != text.npos) {
    throw Error(ErrorKind::kUnsupported,
                "a checkpoint in the format that torch.save wrote before version 1.6",
                "convert it in Python: torch.save(torch.load(OLD, map_location='cpu', "
                "weights_only=True), NEW)");
  }
  if (text.size() > kTarMagicAt && text.substr(kTarMagicAt).starts_with("ustar")) {
    throw Error(ErrorKind::kUnsupported,
                "a tar archive, the format that torch.save wrote before version 0.2",
                "convert it in Python, if you trust it: torch.save(torch.load(OLD, "
                "map_location='cpu', weights_only=False), NEW)");
  }
  if (text.starts_with("\x80")) {
    throw Error(ErrorKind::kUnsupported, "a bare pickle, not a checkpoint of torch.save",
                "load it in Python, if you trust it, and save its tensors with torch.save");
  }
  throw Error(ErrorKind::kCorrupt,
              fmt::format("no torch checkpoint: it begins with {} and not as a zip archive",
                          quote(text.substr(0, 4))));
}

// All entries lie in one folder, the first one's.
std::string_view top_folder(const ZipDirectory& archive) {
  const auto& entries = archive.entries();
  const std::string_view first = entries.empty() ? std::string_view() : entries.front().name;
  const std::size_t slash = first.find('/');
  if (slash == first.npos) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("a zip archive, but no torch checkpoint: its first entry {} lies in no "
                            "folder",
                            quote(first)));
  }
  return first.substr(0, slash + 1);
}

std::string_view read_pickle_entry(const ZipDirectory& archive, std::string_view folder) {
  const auto find = [&](std::string_view name) {
    return archive.find(std::string(folder).append(name));
  };
  if (find("constants.pkl") != nullptr) {
    throw Error(ErrorKind::kUnsupported, "a TorchScript archive, which holds code",
                "save the module's state_dict() with torch.save instead");
  }
  if (const ZipEntry* order = find("byteorder")) {
    const std::string_view text = archive.stored(*order);
    if (text == "big") {
      throw Error(ErrorKind::kUnsupported, "its numbers are big-endian",
                  "load it in torch on a little-endian machine and save it again");
    }
    if (text != "little") {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("its byte order is {}, neither little nor big", quote(text)));
    }
  }
  const ZipEntry* data = find("data.pkl");
  if (data == nullptr) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("a zip archive, but no torch checkpoint: there is no entry {}",
                            quote(std::string(folder) + "data.pkl")));
  }
  return archive.stored(*data);
}

}  // namespace

TorchZip read_torch_zip(std::span<const std::byte> archive) {
  check_kind_of_file({reinterpret_cast<const char*>(archive.data()), archive.size()});
  const ZipDirectory directory(archive);
  const std::string_view folder = top_folder(directory);
  const std::string_view bytes = read_pickle_entry(directory, folder);
  try {
    const Pickle pickle(bytes, find_torch_global);
    return name_torch_tensors(pickle, TorchTensors(pickle, directory, folder), bytes.size());
  } catch (Error& error) {
    error.add_context("data.pkl");
    throw;
  }
}

}  // namespace haul::core
