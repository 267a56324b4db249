#pragma once

// RAM that weights pass through, piece by piece, on their way from files to a device. A disk is
// fast while it has reads waiting: what is expected next is read before it is asked for, into
// pieces that nothing else needs. Any thread; no lock is held while others are called.

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "haul/bytes.h"
#include "runtime/stream/lane.h"
#include "runtime/tiers/disk_reader.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {

class Staging {
 public:
  struct Piece {
    std::byte* data = nullptr;
    Bytes offset = 0;  // in the weight
    Bytes size = 0;
  };
  // Told once of each piece of a weight, in any order and by several threads: the bytes are there,
  // or the reason why not. Either way the piece belongs to who is told, who gives it back. It must
  // not throw or block for long.
  using Landed = std::function<void(const Piece&, std::exception_ptr)>;
  // Of so many bytes, or of fewer, but for one piece at least.
  using MakeMemory = std::function<std::unique_ptr<Slab>(Bytes)>;

  // What a piece of so many bytes takes of the memory.
  static Bytes slot_size(Bytes piece) { return piece + 2 * kReadSlack; }
  // The memory is made with the first read.
  Staging(std::shared_ptr<DiskReader> disk, Bytes piece_size, Bytes pieces, MakeMemory make_memory);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();  // finish()

  // In how many a weight comes; one that is empty, too, has a piece.
  Bytes pieces_of(Bytes size) const;
  // How many weights it can expect at most; none before the first read.
  std::size_t reach() const;

  // Reads a weight; `landed` may be told before this returns. What is expected gives way to it,
  // and what of it has been read already is not read again. Throws Error where the memory cannot
  // be had, and nothing is told then.
  void read(const Home& home, Landed landed);
  // Weights in files that will be asked for next, in their order; what was expected before and is
  // not named again is forgotten. A weight whose read fails is forgotten as well.
  void expect(std::span<const Home> homes);
  void give_back(std::byte* data);
  // Forgets what is expected and waits until the rest has been told and no read is under way. For
  // the end, when nobody asks for more.
  void finish();

 private:
  struct Weight {
    explicit Weight(const Home& kept) : home(kept) {}

    Home home;
    Landed landed;            // none: nobody has asked for it yet
    Bytes begun = 0;          // pieces
    Bytes busy = 0;           // pieces being read or told of; with any the weight stays
    std::vector<Piece> here;  // read before somebody asked
    bool forgotten = false;
  };
  using Weights = std::list<Weight>;

  // Called with mutex_ held.
  void make_memory();
  bool all_begun(const Weight& weight) const;
  void forget(Weights::iterator weight);
  bool forget_one_here();
  std::optional<Weights::iterator> next_to_read();

  // Called without.
  void begin_reads();
  void start(Weights::iterator weight, const Piece& piece, bool early);
  void ended(Weights::iterator weight, const Piece& piece, bool early, std::exception_ptr error);
  void let_go(Weights::iterator weight);

  const std::shared_ptr<DiskReader> disk_;
  const Bytes piece_size_;
  const MakeMemory make_memory_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Bytes pieces_;
  std::unique_ptr<Slab> memory_;
  std::vector<std::byte*> free_;
  Weights asked_;     // with pieces that have not begun
  Weights expected_;  // in the order in which they will be asked for
  Weights ending_;    // with nothing left to begin: asked for, or forgotten
};

}  // namespace haul::runtime
