#include "distributed/parallel/message.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>

#include "core/base/json.h"

namespace haul::distributed {
namespace {

// On the wire: first a tensor of fixed size with the length of the text and its beginning, then the
// rest of the text where there is more, then the tensors one by one. The text is JSON: an object
// with one letter for the kind of a value, sizes and dtype in place of a tensor.
constexpr std::int64_t kFirst = 1024;
constexpr std::int64_t kLength = sizeof(std::int64_t);

using core::Json;
using List = PipelineValue::List;
using Map = PipelineValue::Map;

class Writer {
 public:
  std::vector<at::Tensor> tensors;

  Json write(const PipelineValue& value) {
    return std::visit([&](const auto& one) { return write(one); }, value.value);
  }

 private:
  static Json write(std::monostate) { return nullptr; }
  static Json write(bool flag) { return {{"b", flag}}; }
  static Json write(std::int64_t number) { return {{"i", number}}; }
  static Json write(double number) { return {{"d", std::bit_cast<std::int64_t>(number)}}; }
  static Json write(const std::string& text) {
    return {{"s", std::vector<std::uint8_t>(text.begin(), text.end())}};  // which may be no UTF-8
  }
  Json write(const at::Tensor& tensor) {
    if (!tensor.defined()) return {{"t", nullptr}};
    if (tensor.numel() > 0) tensors.push_back(tensor.detach());
    return {{"t", tensor.sizes().vec()}, {"dtype", static_cast<int>(tensor.scalar_type())}};
  }
  Json write(const List& list) {
    Json items = Json::array();
    for (const PipelineValue& item : list) items.push_back(write(item));
    return {{"l", std::move(items)}};
  }
  Json write(const Map& map) {
    Json items = Json::array();
    for (const auto& [name, item] : map) {
      items.push_back(write(name));
      items.push_back(write(item));
    }
    return {{"m", std::move(items)}};
  }
};

class Reader {
 public:
  explicit Reader(c10::Device device) : device_(device) {}

  std::vector<at::Tensor> tensors;  // to be filled, in this order

  PipelineValue read(const Json& json) {
    if (json.is_null()) return {};
    if (json.contains("t")) return {read_tensor(json)};
    if (json.contains("b")) return {json["b"].get<bool>()};
    if (json.contains("i")) return {json["i"].get<std::int64_t>()};
    if (json.contains("d")) return {std::bit_cast<double>(json["d"].get<std::int64_t>())};
    if (json.contains("s")) return {read_text(json)};
    if (json.contains("l")) {
      List list;
      for (const Json& item : json["l"]) list.push_back(read(item));
      return {std::move(list)};
    }
    Map map;
    const Json& items = json.at("m");
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      map.emplace(read_text(items[i]), read(items[i + 1]));
    }
    return {std::move(map)};
  }

 private:
  static std::string read_text(const Json& json) {
    const auto bytes = json.at("s").get<std::vector<std::uint8_t>>();
    return {bytes.begin(), bytes.end()};
  }
  at::Tensor read_tensor(const Json& json) {
    if (json["t"].is_null()) return {};
    at::Tensor tensor = at::empty(
        json["t"].get<std::vector<std::int64_t>>(),
        at::TensorOptions(static_cast<at::ScalarType>(json["dtype"].get<int>())).device(device_));
    if (tensor.numel() > 0) tensors.push_back(tensor);
    return tensor;
  }

  c10::Device device_;
};

Json header_of(const Message& message, Writer* writer) {
  Json header = {{"last", message.last}};
  if (message.error) {
    header["error"] = {static_cast<int>(message.error->kind()), message.error->what(),
                       message.error->hint()};
  } else {
    header["value"] = writer->write(message.value);
  }
  return header;
}

Message read_header(const Json& header, Reader* reader) {
  Message message;
  message.last = header.at("last").get<bool>();
  if (header.contains("error")) {
    const Json& error = header["error"];
    message.error.emplace(static_cast<ErrorKind>(error[0].get<int>()), error[1].get<std::string>(),
                          error[2].get<std::string>());
  } else {
    message.value = reader->read(header.at("value"));
  }
  return message;
}

}  // namespace

void send(Group& group, int to, const Message& message) {
  Writer writer;
  const std::string text =
      header_of(message, &writer).dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto length = static_cast<std::int64_t>(text.size());
  const at::Tensor first = at::empty({kFirst}, at::kByte);
  auto* const bytes = static_cast<char*>(first.mutable_data_ptr());
  std::memcpy(bytes, &length, kLength);
  const std::int64_t begins = std::min(length, kFirst - kLength);
  std::memcpy(bytes + kLength, text.data(), static_cast<std::size_t>(begins));
  group.send(first, to);
  if (begins < length) {
    const at::Tensor rest = at::empty({length - begins}, at::kByte);
    std::memcpy(rest.mutable_data_ptr(), text.data() + begins, rest.nbytes());
    group.send(rest, to);
  }
  for (const at::Tensor& tensor : writer.tensors) group.send(tensor, to);
}

Message receive(Group& group, int from, c10::Device device) {
  const at::Tensor first = at::empty({kFirst}, at::kByte);
  group.receive(first, from);
  const auto* const bytes = static_cast<const char*>(first.const_data_ptr());
  std::int64_t length = 0;
  std::memcpy(&length, bytes, kLength);
  const std::int64_t begins = std::min(length, kFirst - kLength);
  std::string text(bytes + kLength, static_cast<std::size_t>(begins));
  if (begins < length) {
    const at::Tensor rest = at::empty({length - begins}, at::kByte);
    group.receive(rest, from);
    text.append(static_cast<const char*>(rest.const_data_ptr()), rest.nbytes());
  }
  Reader reader(device);
  Message message = read_header(core::parse_json(text, "a message of the pipeline"), &reader);
  for (const at::Tensor& tensor : reader.tensors) group.receive(tensor, from);
  return message;
}

}  // namespace haul::distributed
