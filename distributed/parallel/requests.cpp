#include "distributed/parallel/requests.h"

#include <utility>

#include "runtime/dispatch/lack_of_memory.h"
#include "runtime/generate/state.h"

namespace haul::distributed {
namespace {

using Map = PipelineValue::Map;

at::Tensor tensor_in(const Map& map, const char* name) {
  return std::get<at::Tensor>(map.at(name).value);
}

}  // namespace

Map request(const char* what, std::int64_t group) {
  return {{"what", {std::string(what)}}, {"group", {group}}};
}

std::string what_of(const Message& message) {
  return std::get<std::string>(std::get<Map>(message.value.value).at("what").value);
}

void AskingRunner::ask(const char* what, const PipelineValue& with) {
  Map map = request(what, group_);
  map["with"] = with;
  ask_(std::move(map));
}

void AskingRunner::begin(std::int64_t capacity) {
  passes_.begin(capacity);
  ask(kBegin, {capacity});
}

void AskingRunner::repeat(std::int64_t times) {
  passes_.repeat(times);
  ask(kRepeat, {times});
}

void AskingRunner::reorder(const at::Tensor& rows) {
  passes_.reorder(rows);
  ask(kReorder, {rows});
}

void AskingRunner::ask_pass(const models::Inputs& inputs, const at::Tensor& x) {
  Map map = request(kPass, group_);
  map["ids"] = {inputs.ids};
  map["positions"] = {inputs.positions};
  map["attended"] = {inputs.attended};
  map["last"] = {inputs.last};
  map["first_row"] = {inputs.first_row};
  map["sequences"] = {inputs.sequences};
  map["x"] = {x};
  ask_(std::move(map));
}

void AskedPasses::perform(Map* request) {
  runtime::telling_lack_of_memory(state_.name, state_.plan.devices, [&] { answer(request); });
}

void AskedPasses::answer(Map* request) {
  Map& map = *request;
  const std::string& what = std::get<std::string>(map.at("what").value);
  if (what == kEnd) return;
  runtime::LayerPasses& passes =
      groups_.try_emplace(std::get<std::int64_t>(map.at("group").value), state_).first->second;
  if (what == kBegin) passes.begin(std::get<std::int64_t>(map.at("with").value));
  if (what == kRepeat) passes.repeat(std::get<std::int64_t>(map.at("with").value));
  if (what == kReorder) passes.reorder(tensor_in(map, "with"));
  if (what != kPass) return;
  models::Inputs inputs{tensor_in(map, "ids")};
  inputs.positions = tensor_in(map, "positions");
  inputs.attended = tensor_in(map, "attended");
  inputs.last = std::get<std::int64_t>(map.at("last").value);
  inputs.first_row = std::get<std::int64_t>(map.at("first_row").value);
  inputs.sequences = std::get<std::int64_t>(map.at("sequences").value);
  const at::Tensor x = tensor_in(map, "x");
  map["x"] = {passes.forward(inputs, x.defined() ? x.to(state_.device) : x)};
}

}  // namespace haul::distributed
