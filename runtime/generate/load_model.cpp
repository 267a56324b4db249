#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/describe/describe.h"
#include "core/describe/gguf_model.h"
#include "core/estimate/workspace.h"
#include "core/formats/cast.h"
#include "core/hub/resolve.h"
#include "core/place/stages.h"
#include "haul/error.h"
#include "haul/torch/empty_weights.h"
#include "runtime/dispatch/lack_of_memory.h"
#include "runtime/dispatch/load_part.h"
#include "runtime/dispatch/load_types.h"
#include "runtime/dispatch/model_tensors.h"
#include "runtime/dispatch/placement.h"
#include "runtime/generate/load_share.h"
#include "runtime/generate/rehearsal.h"
#include "runtime/generate/state.h"
#include "runtime/tiers/gpu.h"
#include "runtime/tiers/process_memory.h"

namespace haul {
namespace {

constexpr std::int64_t kUsualContext = 4096;

core::Json config_of(const core::ModelFiles& files) {
  if (!files.config.empty()) return core::read_json(files.config);
  if (files.checkpoint.extension() == ".gguf") {
    return core::GgufModel(core::Checkpoint::open(files.checkpoint)).config();
  }
  throw Error(ErrorKind::kNotFound, fmt::format("{}: there is no config.json", files.name),
              "a model is run from its config.json and its weights, or from a GGUF file");
}

// Makes the model without weights, or of one that several processes share this one's part, and
// tells which part of the checkpoint that is.
runtime::CheckpointPart make_share(LoadedModel::State* state, const core::ConfigReader& config,
                                   const runtime::ModelShare& share) {
  const EmptyWeights scope;
  if (share.part.count == 1) {
    state->model = models::make_model(config, state->description);
    return {};
  }
  core::CutModel cut = core::cut_model(state->description, share.part.count);
  const std::int64_t heads = state->dimensions().heads;
  state->description = std::move(cut.description);
  state->model = models::make_model(config, state->description);
  models::spread_over_processes(*state->model, cut.summed, share.sum,
                                share.part.index * state->dimensions().heads, heads);
  return {share.part, std::move(cut.cuts)};
}

// What is not said, a given plan says.
ModelOptions completed(ModelOptions options) {
  const Plan* const plan = std::get_if<Plan>(&options.placement);
  if (plan == nullptr) return options;
  if (!options.context) options.context = plan->context;
  if (!options.dtype) options.dtype = plan->dtype;
  return options;
}

std::int64_t context_for(const LoadedModel::State& state, const ModelOptions& options) {
  const std::int64_t trained = state.dimensions().max_positions;
  const std::int64_t most = state.model->most_positions();
  if (!options.context) return trained > 0 ? std::min(trained, kUsualContext) : kUsualContext;
  if (*options.context < 1 || (most > 0 && *options.context > most)) {
    throw Error(
        ErrorKind::kUsage,
        most > 0
            ? fmt::format("a context of {} tokens: the model has 1 to {}", *options.context, most)
            : fmt::format("a context of {} tokens: there must be room for one", *options.context));
  }
  return *options.context;
}

LoadOptions load_options(const LoadedModel::State& state, const ModelOptions& options,
                         Dtype dtype) {
  LoadOptions load;
  load.dtype = dtype;
  if (dtype == Dtype::kF16) load.keep_in_fp32_modules = state.model->wide_in_f16();
  load.offload_folder = options.offload_folder;
  for (const NamedTensor& tensor : all_tensors(state.description)) {
    if (tensor.is_buffer && !tensor.persistent) load.not_stored.push_back(tensor.name);
  }
  load.sharing = options.sharing;
  load.log = options.log;
  return load;
}

// The description that the model will have once it is loaded.
Description as_loaded(Description description, const LoadOptions& load) {
  const auto change = [&](const auto& self, ModuleSpec* module, const std::string& prefix) -> void {
    const auto become = [&](const std::string& name, Dtype* dtype) {
      if (core::is_castable(*dtype)) *dtype = runtime::dtype_of(prefix + name, load);
    };
    for (ParameterSpec& parameter : module->parameters) become(parameter.name, &parameter.dtype);
    for (BufferSpec& buffer : module->buffers) {
      if (buffer.persistent) become(buffer.name, &buffer.dtype);
    }
    for (ModuleSpec& child : module->children) self(self, &child, prefix + child.name + ".");
  };
  change(change, &description.root, "");
  return description;
}

// Sequences in the KV cache: each beam is one.
std::int64_t planned_batch(const ModelOptions& options, const runtime::BeamSettings& beams) {
  const std::int64_t each = options.num_beams.value_or(beams.count);
  if (each < 1) throw Error(ErrorKind::kUsage, "num_beams is below 1");
  return options.batch * each;
}

// The layers of this process, and with them the names of what it is to load; empty: all.
std::vector<std::string> take_part(LoadedModel::State* state, const ModelOptions& options) {
  const std::vector<std::string> layers = state->model->layers();
  state->layers = {0, layers.size()};
  if (!options.part) return {};
  const ModelPart& part = *options.part;
  if (layers.empty()) {
    throw Error(ErrorKind::kUnsupported, fmt::format("{}: a {} cannot be cut into stages",
                                                     state->name, state->description.architecture));
  }
  const std::vector<core::Stage> stages =
      part.split_points.empty()
          ? core::even_stages(core::block_seconds(state->description, layers, load_profile(),
                                                  !runtime::gpus().empty(), options.batch),
                              part.count)
          : core::named_stages(layers, part.split_points, part.count);
  const core::Stage& mine = stages.at(part.index);
  state->layers = {mine.begin, mine.end};
  std::vector<std::string> names;
  const auto tensors = core::block_tensors(state->description, layers);
  for (std::size_t i = mine.begin; i < mine.end; ++i) {
    names.insert(names.end(), tensors[i].begin(), tensors[i].end());
  }
  // What models compute for all of their layers.
  for (const NamedTensor& tensor : all_tensors(state->description)) {
    if (tensor.is_buffer && !tensor.persistent) names.push_back(tensor.name);
  }
  return names;
}

// The description of these layers alone.
Description part_of(Description description, const LoadedModel::State& state,
                    const std::vector<std::string>& names) {
  description = runtime::only(std::move(description), names);
  if (names.empty()) return description;
  Dimensions& dimensions = *description.dimensions;
  dimensions.layers = static_cast<std::int64_t>(state.layers.end - state.layers.begin);
  const auto first = state.windows.begin() + static_cast<std::ptrdiff_t>(state.layers.begin);
  dimensions.windowed_layers = std::count_if(first, first + dimensions.layers,
                                             [](std::int64_t window) { return window > 0; });
  return description;
}

Plan plan_for(const Description& description, const ModelOptions& options, Dtype dtype,
              std::int64_t context, std::int64_t batch, const std::string& name) {
  if (const Plan* plan = std::get_if<Plan>(&options.placement)) return *plan;
  PlanRequest request;
  request.model = name;
  request.dtype = dtype;
  request.context = context;
  request.batch = batch;
  request.prompts = options.batch;
  request.options.no_split = description.no_split;
  request.margins = true;
  request.memory = options.max_memory ? *options.max_memory : runtime::machine_memory();
  request.memory_from_machine = !options.max_memory;
  if (const DeviceMap* map = std::get_if<DeviceMap>(&options.placement)) {
    request.given_map = *map;
  } else {
    request.mode = std::get<MapMode>(options.placement);
  }
  Plan plan = make_plan(description, request, load_profile());
  if (!request.given_map) runtime::require_fit(plan, name);
  return plan;
}

Tokenizer tokenizer_of(const core::ModelFiles& files, std::int64_t vocabulary) {
  Tokenizer tokenizer =
      Tokenizer::load(files.checkpoint.extension() == ".gguf" ? files.checkpoint : files.folder);
  // Tables are often padded to a round size, so that ids beyond the tokenizer's are no error.
  if (vocabulary > 0 && tokenizer.vocabulary_size() > static_cast<std::size_t>(vocabulary)) {
    throw Error(ErrorKind::kCorrupt,
                fmt::format("{}: the tokenizer has {} tokens, and the model knows {}",
                            files.folder.string(), tokenizer.vocabulary_size(), vocabulary),
                "the tokenizer's files belong to another model");
  }
  return tokenizer;
}

at::Device input_device(const Plan& plan) {
  if (!plan.steps.empty()) return runtime::real_device(plan.steps.front().runs_on);
  // A map whose time cannot be predicted. Weights that lie apart bring inputs to where they are.
  for (const auto& [name, device] : plan.map) {
    if (device != plan.map.front().second || !device.is_accelerator()) return at::kCPU;
  }
  return plan.map.empty() ? at::Device(at::kCPU) : runtime::real_device(plan.map.front().second);
}

bool lies_on_one_gpu(const LoadedModel::State& state) {
  return state.device.is_cuda() && !state.plan.kv_in_ram &&
         state.plan.map.front().second.kind == DeviceKind::kGpu &&
         std::all_of(state.plan.map.begin(), state.plan.map.end(), [&](const auto& entry) {
           return entry.second == state.plan.map.front().second;
         });
}

// As plans are made; one from elsewhere may not be for this model, or this machine.
void check_kv_in_ram(const LoadedModel::State& state) {
  if (!state.plan.kv_in_ram) return;
  const bool forgets = std::any_of(state.windows.begin(), state.windows.end(),
                                   [](std::int64_t window) { return window > 0; });
  const std::vector<PlanStep>& steps = state.plan.steps;
  const bool on_one = state.device.is_cuda() && !steps.empty() &&
                      std::all_of(steps.begin(), steps.end(), [&](const PlanStep& step) {
                        return step.runs_on == steps.front().runs_on;
                      });
  if (on_one && !forgets && state.dimensions().encoder_layers == 0) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("{}: the plan keeps keys and values in RAM, which is for one GPU "
                          "and decoders that look at all tokens",
                          state.name),
              "make the plan again for this model and machine");
}

// Its end is waited for where the future ends. What fails there fails again, and is told, where it
// matters.
std::future<void> rehearse_beside(const LoadedModel::State& state, Dtype dtype, bool replayed) {
  const Dimensions& dimensions = state.dimensions();
  const std::optional<at::Device> device = runtime::first_gpu(state.plan);
  if (!device || !dimensions.causal || dimensions.encoder_layers > 0) return {};
  runtime::Rehearsal rehearsal{*device, dtype, replayed};
  for (const PlanDevice& planned : state.plan.devices) {
    if (planned.device != gpu(device->index())) continue;
    // Libraries take theirs when it runs.
    rehearsal.room = planned.activations - std::min(planned.activations, core::kBlasWorkspace);
  }
  return std::async(std::launch::async, [&state, &dimensions, rehearsal] {
    try {
      runtime::rehearse(state.config, dimensions, rehearsal);
    } catch (const std::exception&) {
    }
  });
}

// What the plan has beside the weights.
void set_room_aside(LoadedModel::State* state) {
  runtime::WeightStore& store = *runtime::store_of(runtime::read_model(ModelRef(*state->model)));
  state->kv_room = std::make_unique<runtime::KvRoom>(state->plan, store);
  for (const PlanDevice& device : state->plan.devices) {
    if (device.activations == 0) continue;
    state->activations.push_back(store.ledger(runtime::real_device(device.device))
                                     .reserve(runtime::Tag::kActivations, device.activations));
  }
}

}  // namespace

LoadedModel::LoadedModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
LoadedModel::LoadedModel(LoadedModel&&) noexcept = default;
LoadedModel& LoadedModel::operator=(LoadedModel&&) noexcept = default;
LoadedModel::~LoadedModel() = default;

LoadedModel load_model(const std::string& name, const ModelOptions& options) {
  return runtime::load_share(name, options, {});
}

LoadedModel runtime::load_share(const std::string& name, const ModelOptions& given,
                                const ModelShare& share) {
  const ModelOptions options = completed(given);
  runtime::libtorch_memory();  // which is measured before there is a model
  const auto start = std::chrono::steady_clock::now();
  const core::ModelFiles files = core::resolve_model(name);
  auto state = std::make_unique<LoadedModel::State>();
  state->name = name;
  state->folder = files.folder;
  state->log = options.log;
  state->config = config_of(files);
  const core::Json& config = state->config;
  state->description = core::describe(files, {false, core::WeightDtype::kStored}).description;
  if (!state->description.dimensions) {
    state->description.dimensions.emplace();
  }
  const runtime::CheckpointPart part = make_share(
      state.get(),
      core::ConfigReader(config, files.config.empty() ? files.checkpoint : files.config), share);
  if (files.checkpoint.empty()) {
    core::Checkpoint::open(files.folder);  // names the shards that are missing
    throw Error(ErrorKind::kNotFound, fmt::format("{}: there are no weights", name));
  }
  state->model->eval();
  state->tokenizer =
      std::async(std::launch::async, tokenizer_of, files, state->dimensions().vocabulary).share();
  const Dtype dtype = options.dtype.value_or(main_dtype(state->description));
  state->context = context_for(*state, options);
  state->windows = state->model->windows();
  state->windows.resize(static_cast<std::size_t>(state->dimensions().layers));
  state->generation =
      runtime::read_generation_config(config, files.folder / "generation_config.json");
  LoadOptions load = load_options(*state, options, dtype);
  load.only = take_part(state.get(), options);
  state->plan =
      plan_for(part_of(as_loaded(state->description, load), *state, load.only), options, dtype,
               state->context, planned_batch(options, state->generation.beams), name);
  if (options.on_plan) options.on_plan(state->plan);
  state->device = input_device(state->plan);
  check_kv_in_ram(*state);
  // What processes sum between layers cannot be recorded.
  const bool whole =
      state->layers.begin == 0 && state->layers.end == state->model->layers().size() && !share.sum;
  const bool replayed =
      options.graphs && whole && state->model->can_be_replayed() && lies_on_one_gpu(*state);
  if (runtime::first_gpu(state->plan)) runtime::let_pools_grow();
  const std::future<void> rehearsal = rehearse_beside(*state, dtype, replayed);
  runtime::telling_lack_of_memory(state->name, state->plan.devices, [&] {
    state->bytes_read =
        runtime::load_part(ModelRef(*state->model), files.checkpoint, state->plan, load, part).read;
    set_room_aside(state.get());
  });
  if (replayed) {
    state->replayed = std::make_unique<runtime::ReplayedPass>(
        state->device,
        [at = state.get()](const models::Inputs& inputs) { return at->pass(inputs, {}); });
  }
  if (rehearsal.valid()) rehearsal.wait();
  state->load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return LoadedModel(std::move(state));
}

const Tokenizer& LoadedModel::tokenizer() const {
  return state_->tokenizer.get();
}
const Plan& LoadedModel::plan() const {
  return state_->plan;
}
const Description& LoadedModel::description() const {
  return state_->description;
}
std::int64_t LoadedModel::context() const {
  return state_->context;
}
std::vector<std::string> LoadedModel::layers() const {
  const std::vector<std::string> all = state_->model->layers();
  const auto first = all.begin();
  return {first + static_cast<std::ptrdiff_t>(state_->layers.begin),
          first + static_cast<std::ptrdiff_t>(state_->layers.end)};
}
Bytes LoadedModel::bytes_read() const {
  return state_->bytes_read;
}
double LoadedModel::load_seconds() const {
  return state_->load_seconds;
}
const GenerateFigures& LoadedModel::figures() const {
  return state_->figures;
}
DispatchReport LoadedModel::report() const {
  return dispatch_report(ModelRef(*state_->model));
}
ProcessMemory LoadedModel::process_memory() const {
  return {runtime::peak_memory(), runtime::libtorch_memory()};
}

}  // namespace haul
