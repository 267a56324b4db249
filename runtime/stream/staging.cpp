#include "runtime/stream/staging.h"

#include <algorithm>
#include <utility>

// While a weight that somebody asked for waits for a piece of memory, none is kept for what is only
// expected: all of them are being read, or with who was told, and come back. So nothing waits for
// ever, whatever was expected wrongly.

namespace haul::runtime {
namespace {

// Left to what is asked for out of order, so that it does not cost what was read ahead.
constexpr Bytes kForAsked = 2;

}  // namespace

Staging::Staging(std::shared_ptr<DiskReader> disk, Bytes piece_size, Bytes pieces,
                 MakeMemory make_memory)
    : disk_(std::move(disk)),
      piece_size_(piece_size),
      make_memory_(std::move(make_memory)),
      pieces_(std::max<Bytes>(pieces, 1)) {}

Staging::~Staging() {
  finish();
}

Bytes Staging::pieces_of(Bytes size) const {
  return std::max<Bytes>(1, (size + piece_size_ - 1) / piece_size_);
}

std::size_t Staging::reach() const {
  const std::lock_guard lock(mutex_);
  return memory_ && pieces_ > kForAsked ? pieces_ - kForAsked : 0;
}

void Staging::make_memory() {
  if (memory_) return;
  memory_ = make_memory_(pieces_ * slot_size(piece_size_));
  pieces_ = memory_->size() / slot_size(piece_size_);
  for (Bytes i = pieces_; i-- > 0;) {
    free_.push_back(memory_->data() + i * slot_size(piece_size_) + kReadSlack);
  }
}

bool Staging::all_begun(const Weight& weight) const {
  return weight.begun == pieces_of(weight.home.size);
}

void Staging::read(const Home& home, Landed landed) {
  std::vector<Piece> here;
  Weights::iterator weight;
  {
    const std::lock_guard lock(mutex_);
    make_memory();
    weight = std::find_if(expected_.begin(), expected_.end(),
                          [&](const Weight& expected) { return expected.home == home; });
    if (weight == expected_.end()) weight = expected_.emplace(weight, home);
    weight->landed = std::move(landed);
    here.swap(weight->here);
    weight->busy += here.size();
    Weights& to = all_begun(*weight) ? ending_ : asked_;
    to.splice(to.end(), expected_, weight);
  }
  begin_reads();
  for (const Piece& piece : here) {
    weight->landed(piece, nullptr);
    let_go(weight);
  }
}

void Staging::expect(std::span<const Home> homes) {
  {
    const std::lock_guard lock(mutex_);
    if (!memory_) return;
    Weights now;
    for (const Home& home : homes) {
      const auto same = [&](const Weight& weight) { return weight.home == home; };
      const auto known = std::find_if(expected_.begin(), expected_.end(), same);
      if (known != expected_.end()) {
        now.splice(now.end(), expected_, known);
      } else if (std::none_of(now.begin(), now.end(), same)) {
        now.emplace_back(home);
      }
    }
    while (!expected_.empty()) forget(expected_.begin());
    expected_.swap(now);
  }
  begin_reads();
}

void Staging::give_back(std::byte* data) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(data);
  }
  begin_reads();
}

void Staging::finish() {
  std::unique_lock lock(mutex_);
  while (!expected_.empty()) forget(expected_.begin());
  changed_.wait(lock, [&] { return asked_.empty() && ending_.empty(); });
}

void Staging::forget(Weights::iterator weight) {
  for (const Piece& piece : weight->here) free_.push_back(piece.data);
  weight->here.clear();
  weight->forgotten = true;
  if (weight->busy > 0) {
    ending_.splice(ending_.end(), expected_, weight);
  } else {
    expected_.erase(weight);
  }
}

// The one that will be asked for last.
bool Staging::forget_one_here() {
  const auto last = std::find_if(expected_.rbegin(), expected_.rend(),
                                 [](const Weight& weight) { return !weight.here.empty(); });
  if (last == expected_.rend()) return false;
  forget(std::prev(last.base()));
  return true;
}

std::optional<Staging::Weights::iterator> Staging::next_to_read() {
  if (!asked_.empty()) {
    if (free_.empty() && !forget_one_here()) return std::nullopt;
    return asked_.begin();
  }
  if (free_.size() <= kForAsked) return std::nullopt;
  const auto next = std::find_if(expected_.begin(), expected_.end(),
                                 [&](const Weight& weight) { return !all_begun(weight); });
  return next == expected_.end() ? std::nullopt : std::optional(next);
}

void Staging::begin_reads() {
  for (;;) {
    Weights::iterator weight;
    Piece piece;
    bool early = false;
    {
      const std::lock_guard lock(mutex_);
      const auto next = next_to_read();
      if (!next) return;
      weight = *next;
      early = !weight->landed;
      piece.data = free_.back();
      free_.pop_back();
      piece.offset = weight->begun * piece_size_;
      piece.size = std::min(piece_size_, weight->home.size - piece.offset);
      ++weight->begun;
      ++weight->busy;
      if (!early && all_begun(*weight)) ending_.splice(ending_.end(), asked_, weight);
    }
    start(weight, piece, early);
  }
}

void Staging::start(Weights::iterator weight, const Piece& piece, bool early) {
  try {
    disk_->read({weight->home.file, weight->home.offset + piece.offset, piece.size, piece.data,
                 [this, weight, piece, early](std::exception_ptr error) {
                   ended(weight, piece, early, std::move(error));
                 }});
  } catch (...) {
    ended(weight, piece, early, std::current_exception());
  }
}

void Staging::ended(Weights::iterator weight, const Piece& piece, bool early,
                    std::exception_ptr error) {
  bool asked = false;
  {
    const std::lock_guard lock(mutex_);
    asked = static_cast<bool>(weight->landed);
    if (!asked && !error && !weight->forgotten) {
      weight->here.push_back(piece);
    } else if (!asked) {
      free_.push_back(piece.data);
      if (!weight->forgotten) forget(weight);
    }
  }
  if (asked && error && early) {  // what made a read fail that began earlier may be over
    start(weight, piece, false);
    return;
  }
  if (asked) weight->landed(piece, std::move(error));
  begin_reads();
  let_go(weight);
}

// Comes last of all that is done for a piece: then finish() may return.
void Staging::let_go(Weights::iterator weight) {
  Weights gone;  // without the lock: what was to be told may be the last to hold other things
  const std::lock_guard lock(mutex_);
  if (--weight->busy > 0) return;
  if (weight->forgotten || (weight->landed && all_begun(*weight))) {
    gone.splice(gone.end(), ending_, weight);
  }
  if (asked_.empty() && ending_.empty()) changed_.notify_all();
}

}  // namespace haul::runtime
