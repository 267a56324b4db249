#pragma once

// The memory of one dispatched model and the streamers that serve it. It lives as long as a storage
// that it gave to the model does. Made by one thread, used by any.

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "haul/device_map.h"
#include "haul/plan.h"
#include "runtime/stream/streamer.h"
#include "runtime/tiers/disk_reader.h"
#include "runtime/tiers/ledger.h"
#include "runtime/tiers/page_cache.h"
#include "runtime/tiers/slab.h"

namespace haul::runtime {

class SplitRoom;
class WeightStore;

// The beginning of a weight, which alone comes where the CPU multiplies the rest.
struct HelpedPart {
  Bytes size = 0;         // 0: it does not
  std::int64_t rows = 0;  // of input, up to which it does
};

// One storage of a dispatched model.
struct Weight {
  Weight(std::string its_name, c10::Device used_on) : name(std::move(its_name)), device(used_on) {}

  std::string name;
  c10::Device device;            // where it is used
  Streamer* streamer = nullptr;  // null: it lies there
  int number = -1;               // in the streamer
  int part = -1;                 // likewise, its beginning alone; the CPU multiplies the rest
  Bytes part_size = 0;
  // Rows of input for which there is such a part, and it is as it was.
  std::atomic<std::int64_t> helped_rows = 0;
  bool looked_up = false;  // rows of it are read where it lies, and no slot is kept for it
  std::shared_ptr<WeightStore> store;

  c10::StorageImpl* storage = nullptr;
  std::mutex mutex;  // guards those below
  int leases = 0;
  std::byte* host = nullptr;      // its home, where that is in RAM
  std::unique_ptr<Slab> changed;  // that home, where an op has written to one from a file
};

// The weight behind a tensor; null for any other tensor. The tensor keeps it alive.
Weight* find_weight(const at::Tensor& tensor);

// The name of a tensor that belongs to a model of which a part is offloaded, wherever it lies
// itself. Nothing for any other tensor.
std::optional<std::string> name_in_offloaded_model(const at::Tensor& tensor);

struct ModelTensors;
// The store of a dispatched model; null for any other.
WeightStore* store_of(const ModelTensors& model);

// For tests: how the readers of stores that are made from now on behave.
DiskReader::Options& disk_options();

class WeightStore : public std::enable_shared_from_this<WeightStore> {
 public:
  WeightStore(DeviceMap map, c10::Device main_device, const MaxMemory& budgets);
  ~WeightStore();

  // The map that the model was placed by; of a model that comes as a whole, where it is now.
  DeviceMap map() const;
  c10::Device main_device() const { return main_device_; }
  DiskReader& disk() { return *disk_; }
  const std::shared_ptr<DiskReader>& shared_disk() { return disk_; }

  // The account of a tier, made when it is first asked for.
  Ledger& ledger(c10::Device device);
  const std::map<std::string, Ledger>& ledgers() const { return ledgers_; }
  // What is planned for each device, and of it what the account of its tier is to hold.
  void set_plan(std::vector<PlanDevice> devices) { plan_ = std::move(devices); }
  const std::vector<PlanDevice>& plan() const { return plan_; }
  Bytes planned(const std::string& tier) const;

  // Of weights, from files into memory when the model was loaded. Any thread.
  void add_read(Bytes bytes) { read_ += bytes; }
  Bytes bytes_read() const { return read_; }

  // Memory that stays. Kept until the store goes.
  Slab& add_slab(c10::Device device, Bytes size, const SharedPart& shared = {});
  // RAM that the model has itself, counted until the store goes.
  void add_kept(Bytes size);

  // One of so many for GPUs, which share RAM for what comes from files.
  Streamer& add_streamer(c10::Device device, Bytes slots, SlotMemory memory, std::size_t gpus);
  Streamer* streamer(c10::Device device);
  const std::map<c10::Device, std::unique_ptr<Streamer>, bool (*)(c10::Device, c10::Device)>&
  streamers() const {
    return streamers_;
  }

  // Of a model that comes as a whole: whether it is on its device.
  bool is_here() const;
  // A model that comes as a whole stays until it is told to go, or the next one is used.
  void offload();
  // Before any weight of this store is used, that model goes.
  void set_previous(std::weak_ptr<WeightStore> previous) { previous_ = std::move(previous); }
  void offload_previous();

  // A storage for a model's tensor: at `data` where it stays, or streamed.
  c10::Storage resident(std::string name, c10::Device device, Bytes size, std::byte* data);
  c10::Storage streamed(std::string name, c10::Device device, Bytes size, const Home& home,
                        const HelpedPart& part = {}, bool looked_up = false);

  // Where the CPU works for a GPU, made when it is first asked for.
  SplitRoom& split_room(c10::Device device);

  // Memory of the model that was where it belongs and is none of this store's, by its name.
  void add_left(std::string name, const c10::Storage& storage);
  // The model is an ordinary one again: its memory is its own.
  void forget_left();

  // A part of the model is not where ops look for it.
  bool is_offloaded() const { return offloaded_; }
  void set_offloaded() { offloaded_ = true; }

  // Brings the files that weights were read from into the page cache, while the model is used.
  void keep_cached(std::vector<std::filesystem::path> files) { filler_.emplace(std::move(files)); }

  // Holds something until the store has gone.
  void keep(std::shared_ptr<const void> what) { kept_ = std::move(what); }

  // Ops on weights of several devices have to be brought together.
  bool has_several_devices() const { return several_devices_; }
  void set_several_devices() { several_devices_ = true; }

 private:
  std::shared_ptr<const void> kept_;  // first, so that it goes last

  c10::Storage storage(std::unique_ptr<Weight> weight, Bytes size, std::byte* data);

  DeviceMap map_;
  c10::Device main_device_;
  MaxMemory budgets_;
  std::shared_ptr<DiskReader> disk_ = std::make_shared<DiskReader>(disk_options());
  std::map<std::string, Ledger> ledgers_;
  std::vector<PlanDevice> plan_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<Reservation> counted_;
  std::atomic<Bytes> read_ = 0;
  std::optional<PageCacheFiller> filler_;
  std::map<c10::Device, std::unique_ptr<Streamer>, bool (*)(c10::Device, c10::Device)> streamers_{
      [](c10::Device a, c10::Device b) {
        return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
      }};
  // Held, so that no address is used again meanwhile.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> left_;
  bool offloaded_ = false;
  bool several_devices_ = false;
  std::weak_ptr<WeightStore> previous_;
  std::mutex split_mutex_;
  std::map<int, std::unique_ptr<SplitRoom>> split_rooms_;  // last: they end before what they read
};

std::string tier_name(c10::Device device);

// Leases of all offloaded weights of an op, and their storages' pointers set for as long.
class OpLeases {
 public:
  OpLeases() = default;
  OpLeases(const OpLeases&) = delete;
  OpLeases& operator=(const OpLeases&) = delete;
  ~OpLeases();

  // Blocks until the bytes are there.
  void take(std::vector<Weight*> weights);

 private:
  std::vector<Weight*> weights_;  // sorted by streamer
};

// Keeps what an op has written into a leased weight: in its home in RAM, which it gets if it has
// none.
void keep_changes(Weight& weight);

}  // namespace haul::runtime
