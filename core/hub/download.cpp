#include "core/hub/download.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "core/base/terminal.h"
#include "core/hub/name.h"
#include "core/hub/parallel.h"
#include "core/hub/partial_file.h"
#include "haul/error.h"

namespace haul::core {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kAtOnce = 4;

// One file of one commit on its way.
class FileDownload {
 public:
  FileDownload(const HubClient& client, const ModelCache& cache, Asked asked, HubFile file)
      : client_(client), cache_(cache), asked_(std::move(asked)), file_(std::move(file)) {}

  // Tells whether anything had to be fetched.
  bool run(Progress* progress, const std::atomic<bool>& stop) {
    const BlobLock lock(cache_, file_.etag);
    const bool missing = !cache_.has_blob(file_.etag);
    if (missing) {
      PartialFile partial(cache_.blob(file_.etag), file_.etag, file_.size);
      shown_ = partial.size();
      resumed_ = shown_ > 0;
      progress->advance(shown_);
      fetch(&partial, progress, stop);
      verify(&partial, progress, stop);
      partial.commit();
    }
    cache_.link(asked_.revision, file_.name, file_.etag);
    return missing;
  }

 private:
  std::string subject() const { return fmt::format("{}/{}", asked_.repository, asked_.file); }

  void fetch(PartialFile* partial, Progress* progress, const std::atomic<bool>& stop) {
    int attempt = 1;
    while (!partial->complete()) {
      const Bytes before = partial->size();
      const Bytes furthest = shown_;
      const HttpAnswer answer = request(partial, progress, stop);
      if (stop) throw Error(ErrorKind::kResource, fmt::format("{}: stopped", subject()));
      const bool good = answer.status == 200 || answer.status == 206;
      if (good && partial->complete()) return;
      if (answer.failure == HttpFailure::kNone && answer.status == 416 && before > 0) {
        partial->restart();
        continue;
      }
      if (shown_ > furthest) attempt = 1;
      ++attempt;
      HttpAnswer failed = answer;
      if (good && answer.failure == HttpFailure::kNone) {
        failed.failure = HttpFailure::kBroken;
        failed.reason =
            fmt::format("{} bytes of {} came", partial->size(), partial->expected().value_or(0));
      }
      if (!client_.wait_for_attempt(attempt, failed)) throw_answer(failed, asked_);
    }
  }

  HttpAnswer request(PartialFile* partial, Progress* progress, const std::atomic<bool>& stop) {
    const Bytes from = partial->size();
    HubClient::Get get{client_.file_url(asked_.repository, asked_.revision, asked_.file), "", "",
                       false};
    if (from > 0) {
      resumed_ = true;
      get.range = fmt::format("bytes={}-", from);
      get.if_range = file_.etag;
    }
    bool begun = false;
    return client_.get(get, [&](const HttpAnswer& answer, std::span<const std::byte> bytes) {
      if (answer.status != 200 && answer.status != 206) return false;
      if (!begun) begin_body(answer, from, partial);
      begun = true;
      if (bytes.size() > *partial->expected() - partial->size()) {
        partial->remove();
        throw Error(
            ErrorKind::kCorrupt,
            fmt::format("{}: expected {} bytes, but more came", subject(), *partial->expected()),
            "the file was not kept; try again");
      }
      partial->append(bytes);
      if (partial->size() > shown_) {
        progress->advance(partial->size() - shown_);
        shown_ = partial->size();
      }
      return !stop;
    });
  }

  // Holds the answer's own account of what it sends against what was asked for.
  void begin_body(const HttpAnswer& answer, Bytes from, PartialFile* partial) const {
    std::optional<Bytes> total = length_header(answer, "content-length");
    if (answer.status == 206) {
      const std::string* text = answer.header("content-range");
      const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
      if (!range || range->first != from) {
        throw Error(ErrorKind::kCorrupt,
                    fmt::format("{}: asked for the bytes from {} on, the answer is about '{}'",
                                subject(), from, text == nullptr ? "" : printable(*text)));
      }
      total = range->total;
    } else if (from > 0) {
      partial->restart();
    }
    if (total && partial->expected() && *total != *partial->expected()) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("{}: the hub lists {} bytes, the answer has {}", subject(),
                              *partial->expected(), *total),
                  "the file was not kept; try again");
    }
    if (partial->expected()) return;
    // Without an end, a file could fill the disk.
    if (!total) {
      throw Error(ErrorKind::kCorrupt,
                  fmt::format("{}: the hub does not tell its size", subject()));
    }
    partial->expect(*total);
  }

  void verify(PartialFile* partial, Progress* progress, const std::atomic<bool>& stop) {
    auto wrong = partial->wrong_hash();
    if (wrong && resumed_) {
      // What an earlier run left may have been damaged: once more from the beginning.
      partial->restart();
      fetch(partial, progress, stop);
      wrong = partial->wrong_hash();
    }
    if (!wrong) return;
    partial->remove();
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: wrong content: {}", subject(), *wrong),
                "the file was not kept; try again, and do not trust a hub that repeats this");
  }

  const HubClient& client_;
  const ModelCache& cache_;
  Asked asked_;
  HubFile file_;
  Bytes shown_ = 0;  // on the progress bar: the furthest that it came
  bool resumed_ = false;
};

void make_blob_folder(const fs::path& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (!code) return;
  throw Error(ErrorKind::kResource,
              fmt::format("{}: cannot create the folder: {}", folder.string(), code.message()),
              "HF_HUB_CACHE may name a folder that you can write to");
}

// What of a file lies in the cache from an interrupted run.
Bytes fetched_before(const ModelCache& cache, const HubFile& file) {
  std::error_code code;
  const auto size = fs::file_size(cache.blob(file.etag + ".incomplete"), code);
  return code ? 0 : std::min<Bytes>(size, file.size.value_or(0));
}

}  // namespace

void complete_entry(const HubClient& client, const Asked& asked, HubFile* file) {
  if (!file->etag.empty() && file->size) return;
  const Url url = client.file_url(asked.repository, asked.revision, file->name);
  const HttpAnswer answer = client.with_retries([&] { return client.head(url); });
  if (answer.failure != HttpFailure::kNone || answer.status >= 400) throw_answer(answer, asked);
  const bool linked = answer.header("x-linked-etag") != nullptr;
  const std::string* header = answer.header(linked ? "x-linked-etag" : "etag");
  const auto etag = header == nullptr ? std::nullopt : normalised_etag(*header);
  if (!etag) {
    throw Error(
        ErrorKind::kCorrupt,
        fmt::format("{}/{}: the hub's answer has no usable ETag", asked.repository, file->name),
        "if HF_ENDPOINT is set, check that it names a hub");
  }
  file->etag = *etag;
  file->size = length_header(answer, linked ? "x-linked-size" : "content-length");
}

std::vector<FetchedFile> fetch_files(const HubClient& client, const ModelCache& cache,
                                     const std::string& repository, const std::string& commit,
                                     const std::vector<HubFile>& files) {
  std::vector<FetchedFile> results;
  std::vector<std::pair<HubFile, std::size_t>> missing;  // with its place in the results
  for (const HubFile& file : files) {
    results.push_back({file.name, cache.snapshot(commit) / file.name, 0, false});
    if (!cache.find(commit, file.name)) missing.emplace_back(file, results.size() - 1);
  }
  if (!missing.empty()) make_blob_folder(cache.folder() / "blobs");
  Bytes total = 0;
  Bytes present = 0;
  for (auto& [file, place] : missing) {
    complete_entry(client, client.asked(repository, commit, file.name), &file);
    if (cache.has_blob(file.etag)) continue;
    total += file.size.value_or(0);
    present += fetched_before(cache, file);
  }
  if (total > present) check_free_space(cache.folder(), total - present);

  Progress progress(repository, total);
  run_parallel(missing.size(), kAtOnce, [&](std::size_t i, const std::atomic<bool>& stop) {
    const auto& [file, place] = missing[i];
    FileDownload download(client, cache, client.asked(repository, commit, file.name), file);
    results[place].fetched = download.run(&progress, stop);
  });
  if (total > 0) progress.finish();
  for (FetchedFile& file : results) file.size = fs::file_size(file.path);
  return results;
}

}  // namespace haul::core
