#pragma once

// One model in the cache that huggingface_hub keeps:
//
//   models--org--name/refs/REVISION           the commit that a branch or tag stood for
//   models--org--name/snapshots/COMMIT/FILE   a relative link to its content
//   models--org--name/blobs/ETAG              contents; ETAG.incomplete: half fetched
//   models--org--name/.no_exist/COMMIT/FILE   files that the hub said it does not have
//   .locks/models--org--name/ETAG.lock        held while a content is fetched
//
// Names given to it are safe (name.h). Reading is free of side effects. May be called from any
// thread; what appears under a final name is whole. Throws Error with the path.

#include <filesystem>
#include <optional>
#include <string>

namespace haul::core {

class ModelCache {
 public:
  ModelCache(const std::filesystem::path& cache, const std::string& repository);

  const std::filesystem::path& folder() const { return folder_; }

  // The commit of a revision: itself, or what the cache remembers.
  std::optional<std::string> commit_of(const std::string& revision) const;
  std::filesystem::path snapshot(const std::string& commit) const;
  // A file of a snapshot; nothing when it is not there or its content is gone.
  std::optional<std::filesystem::path> find(const std::string& commit,
                                            const std::string& file) const;
  bool known_absent(const std::string& commit, const std::string& file) const;

  std::filesystem::path blob(const std::string& etag) const;
  bool has_blob(const std::string& etag) const;

  void remember_commit(const std::string& revision, const std::string& commit) const;
  void remember_absent(const std::string& commit, const std::string& file) const;
  // Makes the snapshot's file a link to a content.
  void link(const std::string& commit, const std::string& file, const std::string& etag) const;

 private:
  friend class BlobLock;
  std::filesystem::path folder_;
  std::filesystem::path locks_;
};

// Held while one content is fetched: another process, huggingface_hub's too, waits for it, and so
// does this one, with a line on stderr. On a file system without locks it holds nothing, and two
// processes write the same bytes twice.
class BlobLock {
 public:
  BlobLock(const ModelCache& cache, const std::string& etag);
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace haul::core
