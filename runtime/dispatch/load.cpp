#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/describe/transformers_tensors.h"
#include "core/formats/cast.h"
#include "core/formats/checkpoint.h"
#include "haul/error.h"
#include "haul/torch/dispatch.h"
#include "runtime/dispatch/build.h"
#include "runtime/dispatch/lack_of_memory.h"
#include "runtime/dispatch/load_part.h"
#include "runtime/dispatch/load_types.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/dispatch/placement.h"
#include "runtime/dispatch/weight_store.h"

namespace haul {
namespace runtime {
namespace {

// What the checkpoint holds in full of which a model's tensor has a part.
Shape whole_shape(const ModelTensor& item, const CheckpointPart& part) {
  Shape shape = item.tensor.sizes().vec();
  const auto cut = part.cuts.find(item.name);
  if (cut != part.cuts.end()) shape.at(cut->second.dim) *= part.part.count;
  return shape;
}

// What of a checkpoint goes into which tensor of a model.
class Match {
 public:
  Match(const ModelTensors& model, const core::TransformersTensors& stored,
        const CheckpointPart& part) {
    std::unordered_map<std::string, std::size_t> names;
    for (std::size_t i = 0; i < stored.headers().size(); ++i) names[stored.headers()[i].name] = i;
    std::unordered_map<const void*, std::size_t> shared;  // by tensor object: what fills it
    for (const ModelTensor& item : model.all) {
      const auto found = names.find(item.name);
      if (found == names.end()) continue;
      shared.try_emplace(item.tensor.unsafeGetTensorImpl(), found->second);
      const core::HeaderTensor& header = stored.headers()[found->second];
      const Shape expected = whole_shape(item, part);
      if (header.shape != expected) {
        misshapen.push_back(fmt::format("'{}': [{}] in the model, [{}] in the checkpoint",
                                        item.name, fmt::join(expected, ", "),
                                        fmt::join(header.shape, ", ")));
      }
      names.erase(found);
    }
    for (const ModelTensor& item : model.all) {
      const auto found = shared.find(item.tensor.unsafeGetTensorImpl());
      source.push_back(found == shared.end() ? kNone : found->second);
      if (found != shared.end()) continue;
      report.missing.push_back(item.name);
      if (item.tensor.is_meta()) report.uninitialised.push_back(item.name);
    }
    for (const core::HeaderTensor& header : stored.headers()) {
      if (names.contains(header.name)) report.unexpected.push_back(header.name);
    }
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> source;  // of each tensor of the model: the header's number, or kNone
  std::vector<std::string> misshapen;
  LoadReport report;
};

void forget_not_stored(const LoadOptions& options, LoadReport* report) {
  const std::unordered_set<std::string> computed(options.not_stored.begin(),
                                                 options.not_stored.end());
  std::erase_if(report->missing, [&](const std::string& name) { return computed.contains(name); });
}

std::string listed(const std::vector<std::string>& names) {
  return fmt::format("{}: {}", names.size(), fmt::join(names, ", "));
}

void check(const Match& match, const std::string& checkpoint, const LoadOptions& options) {
  const auto fail = [&](const std::string& what, const std::string& hint) {
    throw Error(ErrorKind::kCorrupt, fmt::format("{}: {}", checkpoint, what), hint);
  };
  if (!match.misshapen.empty()) {
    fail(fmt::format("shapes differ, {}", listed(match.misshapen)), "");
  }
  if (options.strict && !match.report.unexpected.empty()) {
    fail(fmt::format("names that the model does not have, {}", listed(match.report.unexpected)),
         "leave out strict to load the rest");
  }
  if (options.strict && !match.report.missing.empty()) {
    fail(fmt::format("names that the checkpoint does not have, {}", listed(match.report.missing)),
         "leave out strict to load the rest");
  }
  if (!options.allow_missing && !match.report.uninitialised.empty()) {
    fail(fmt::format("weights that would stay without a value, {}",
                     listed(match.report.uninitialised)),
         "set allow_missing to give them values yourself before the model runs");
  }
}

void say(const LoadOptions& options, const std::string& line) {
  if (options.log) {
    options.log(line);
  } else {
    std::fprintf(stderr, "haul: %s\n", line.c_str());
  }
}

// A tensor with several names has one place: that of its first name.
void say_split_ties(const ModelTensors& model, const Placement& placement,
                    const LoadOptions& options) {
  const DeviceMap* const map = std::get_if<DeviceMap>(&placement);
  if (map == nullptr) return;
  for (const std::vector<std::string>& names : model.description.tied) {
    const std::optional<Device> first = device_of(*map, names.front());
    const bool together = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return device_of(*map, name) == first;
    });
    if (together || !first) continue;
    say(options, fmt::format("note: the device map splits {}, which are one tensor: it goes to {}",
                             fmt::join(names, ", "), to_string(*first)));
  }
}

bool stays_wide(const std::string& name, const LoadOptions& options) {
  return std::any_of(options.keep_in_fp32_modules.begin(), options.keep_in_fp32_modules.end(),
                     [&](const std::string& part) {
                       return name == part || name.find(part + ".") != std::string::npos;
                     });
}

// The dtype that each tensor of the model gets: floats are cast, others stay as they are stored.
std::vector<c10::ScalarType> types_of(const ModelTensors& model, const Match& match,
                                      const core::TransformersTensors& stored,
                                      const LoadOptions& options) {
  std::vector<c10::ScalarType> types;
  for (std::size_t i = 0; i < model.all.size(); ++i) {
    const c10::ScalarType own = model.all[i].tensor.scalar_type();
    if (match.source[i] == Match::kNone) {
      types.push_back(own);
      continue;
    }
    const Dtype file = stored.headers()[match.source[i]].dtype;
    if (!core::is_castable(file)) {
      types.push_back(to_scalar_type(file));
    } else if (options.dtype) {
      types.push_back(to_scalar_type(dtype_of(model.all[i].name, options)));
    } else {
      types.push_back(c10::isFloatingType(own) ? own : to_scalar_type(file));
    }
    const Dtype used = to_dtype(types.back());
    if (core::is_castable(file) && !core::is_castable(used)) {
      throw Error(ErrorKind::kUnsupported,
                  fmt::format("'{}': {} in the checkpoint, and {} is asked for", model.all[i].name,
                              haul::name(file), haul::name(used)),
                  "floats become F16, BF16, F32 or F64");
    }
  }
  return types;
}

// The checkpoint once for each dtype that is asked of it, and what the model has beyond it.
class CheckpointSource final : public UnitSource {
 public:
  CheckpointSource(const core::Checkpoint& checkpoint, const Match& match,
                   const CheckpointPart& part)
      : checkpoint_(checkpoint), match_(match), part_(part) {}

  void set_units(const std::vector<Unit>& units) {
    all_on_cpu_ = std::all_of(units.begin(), units.end(),
                              [](const Unit& unit) { return unit.runs_on.is_cpu(); });
    for (const Unit& unit : units) {
      const std::size_t header = match_.source[unit.first];
      own_.push_back(header == Match::kNone ? unit.tensors.front() : at::Tensor());
      headers_.push_back(header);
      const auto cut = part_.cuts.find(unit.name);
      cuts_.push_back(cut == part_.cuts.end() ? nullptr : &cut->second);
      const Dtype dtype = to_dtype(unit.type);
      dtypes_.push_back(dtype);
      if (header != Match::kNone && !views_.contains(dtype)) {
        views_.emplace(dtype, core::TransformersTensors(checkpoint_, dtype));
      }
    }
  }

  std::optional<FileRange> file_of(std::size_t unit) const override {
    const std::optional<Lying> found = lying(unit);
    if (!found || found->dtype != dtype(unit)) return std::nullopt;
    return found->range;
  }
  std::optional<StoredFloats> floats_of(std::size_t unit) const override {
    const std::optional<Lying> found = lying(unit);
    if (!found || found->dtype == dtype(unit)) return std::nullopt;
    return StoredFloats{found->range, found->size, to_scalar_type(found->dtype)};
  }

  void stream(std::size_t unit,
              const std::function<void(std::span<const std::byte>)>& sink) const override {
    if (headers_[unit] != Match::kNone) {
      if (cuts_[unit] != nullptr) {
        view(unit).stream_part(headers_[unit], *cuts_[unit], part_.part, sink);
      } else {
        view(unit).stream(headers_[unit], sink);
      }
      return;
    }
    const at::NoGradGuard no_gradients;
    const at::Tensor value = own_[unit].to(c10::kCPU).contiguous();
    sink({static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()});
  }

  std::string identity() const override {
    const bool any_own = std::any_of(own_.begin(), own_.end(), [](const at::Tensor& tensor) {
      return tensor.defined() && !tensor.is_meta();
    });
    return any_own ? std::string() : files();
  }
  bool is_own(std::size_t unit) const override { return headers_[unit] == Match::kNone; }
  Bytes read_for(std::size_t unit, Bytes size) const override {
    const bool in_part =
        cuts_[unit] == nullptr || view(unit).reads_part_alone(headers_[unit], *cuts_[unit]);
    return in_part ? size : size * static_cast<Bytes>(part_.part.count);
  }
  std::string files() const override {
    std::string text;
    if (!part_.cuts.empty()) {
      text = fmt::format("part {} of {}\n", part_.part.index, part_.part.count);
    }
    for (const core::MappedFile& file : checkpoint_.files()) {
      struct stat status {};
      if (stat(file.path().c_str(), &status) != 0) return {};
      text +=
          fmt::format("{} {} {} {}.{}\n", std::filesystem::absolute(file.path()).string(),
                      status.st_size, status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    }
    return text;
  }

  bool leaves(std::size_t unit) const override {
    return headers_[unit] == Match::kNone &&
           (own_[unit].is_meta() || (all_on_cpu_ && own_[unit].is_cpu()));
  }

 private:
  struct Lying {
    FileRange range;
    Bytes size;
    Dtype dtype;
  };

  const core::TransformersTensors& view(std::size_t unit) const { return views_.at(dtypes_[unit]); }
  // Of a unit that the checkpoint holds.
  Dtype dtype(std::size_t unit) const { return view(unit).headers()[headers_[unit]].dtype; }
  // This process's part of what the checkpoint holds of a unit, where it lies in one piece.
  std::optional<Lying> lying(std::size_t unit) const {
    if (headers_[unit] == Match::kNone) return std::nullopt;
    const core::StoredTensor* const stored = view(unit).as_it_lies(headers_[unit]);
    if (stored == nullptr) return std::nullopt;
    Lying found{
        {checkpoint_.files()[stored->file].path(), stored->offset}, stored->size, stored->dtype};
    if (cuts_[unit] != nullptr) {
      if (!view(unit).reads_part_alone(headers_[unit], *cuts_[unit])) return std::nullopt;
      found.size /= static_cast<Bytes>(part_.part.count);
      found.range.offset += found.size * static_cast<Bytes>(part_.part.index);
    }
    return found;
  }

  const core::Checkpoint& checkpoint_;
  const Match& match_;
  const CheckpointPart& part_;
  std::vector<const core::TensorCut*> cuts_;  // of each unit; null: it is whole
  std::vector<std::size_t> headers_;
  std::vector<at::Tensor> own_;  // what a unit has that the checkpoint does not hold
  bool all_on_cpu_ = true;
  std::vector<Dtype> dtypes_;
  std::map<Dtype, core::TransformersTensors> views_;
};

}  // namespace

Dtype dtype_of(const std::string& name, const LoadOptions& options) {
  return stays_wide(name, options) ? Dtype::kF32 : *options.dtype;
}

LoadReport load_part(const ModelRef& model, const std::filesystem::path& checkpoint,
                     const Placement& placement, const LoadOptions& options,
                     const CheckpointPart& part) {
  const ModelTensors tensors = only(read_model(model), options.only);
  const core::Checkpoint opened = core::Checkpoint::open(checkpoint);
  for (const std::string& note : opened.notes()) say(options, note);
  const core::TransformersTensors stored(opened, std::nullopt);
  Match match(tensors, stored, part);
  forget_not_stored(options, &match.report);
  check(match, checkpoint.string(), options);
  if (!match.report.unexpected.empty() && options.only.empty()) {
    say(options, fmt::format("note: {}: names that the model does not have, {}",
                             checkpoint.string(), listed(match.report.unexpected)));
  }
  if (!match.report.missing.empty()) {
    say(options, fmt::format("note: {}: names that the checkpoint does not have, {}",
                             checkpoint.string(), listed(match.report.missing)));
  }
  say_split_ties(tensors, placement, options);
  const PlacedModel placed = place_units(tensors, types_of(tensors, match, stored, options),
                                         Memory::kFresh, placement, options);
  CheckpointSource source(opened, match, part);
  source.set_units(placed.units);
  match.report.read = telling_lack_of_memory(checkpoint.string(), placed.plan.devices, [&] {
    return build(placed, source, options, options.sharing.get())->bytes_read();
  });
  return std::move(match.report);
}

}  // namespace runtime

LoadReport load_checkpoint_in_model(const ModelRef& model, const std::filesystem::path& checkpoint,
                                    const Placement& placement, const LoadOptions& options) {
  return runtime::load_part(model, checkpoint, placement, options, {});
}

}  // namespace haul
