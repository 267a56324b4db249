#include "distributed/parallel/message.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>

#include "core/base/json.h"

namespace haul::distributed {
namespace {

// On the wire: first a tensor of fixed size, because each takes the two processes some time, and
// the next token of a few sequences is to come in one. It begins with two lengths, of the text and
// of all that follows. The text is JSON: an object with one letter for the kind of a value, sizes
// and dtype in place of a tensor. Behind it are the bytes of small tensors, and what does not fit
// is sent next. Last come large tensors and those of GPUs one by one.
constexpr std::int64_t kFirst = 64 << 10;
constexpr std::int64_t kLengths = 2 * sizeof(std::int64_t);
constexpr std::size_t kSmall = 64 << 10;  // bytes of a tensor

bool is_within(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.nbytes() <= kSmall;
}

using core::Json;
using List = PipelineValue::List;
using Map = PipelineValue::Map;

class Writer {
 public:
  std::string within;               // bytes of small tensors
  std::vector<at::Tensor> tensors;  // the others

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
    const bool is_small = is_within(tensor);
    if (is_small) {
      const at::Tensor row = tensor.detach().contiguous();
      within.append(static_cast<const char*>(row.const_data_ptr()), row.nbytes());
    } else if (tensor.numel() > 0) {
      tensors.push_back(tensor.detach());
    }
    return {{"t", tensor.sizes().vec()},
            {"dtype", static_cast<int>(tensor.scalar_type())},
            {"within", is_small}};
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
  Reader(c10::Device device, std::string_view within) : device_(device), within_(within) {}

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
    const bool is_small = json.at("within").get<bool>();
    const at::TensorOptions type(static_cast<at::ScalarType>(json["dtype"].get<int>()));
    at::Tensor tensor = at::empty(json["t"].get<std::vector<std::int64_t>>(),
                                  type.device(is_small ? c10::Device(c10::kCPU) : device_));
    if (is_small) {
      within_.copy(static_cast<char*>(tensor.mutable_data_ptr()), tensor.nbytes());
      within_.remove_prefix(tensor.nbytes());
      return tensor.to(device_);
    }
    if (tensor.numel() > 0) tensors.push_back(tensor);
    return tensor;
  }

  c10::Device device_;
  std::string_view within_;  // of small tensors that are still to be read
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
  std::string body =
      header_of(message, &writer).dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::array<std::int64_t, 2> lengths = {
      static_cast<std::int64_t>(body.size()),
      static_cast<std::int64_t>(body.size() + writer.within.size())};
  body += writer.within;
  const at::Tensor first = at::empty({kFirst}, at::kByte);
  auto* const bytes = static_cast<char*>(first.mutable_data_ptr());
  std::memcpy(bytes, lengths.data(), kLengths);
  const std::size_t begins = body.copy(bytes + kLengths, kFirst - kLengths);
  group.send(first, to);
  if (begins < body.size()) {
    const at::Tensor rest = at::empty({lengths[1] - static_cast<std::int64_t>(begins)}, at::kByte);
    body.copy(static_cast<char*>(rest.mutable_data_ptr()), rest.nbytes(), begins);
    group.send(rest, to);
  }
  for (const at::Tensor& tensor : writer.tensors) group.send(tensor, to);
}

void Receiver::expect() {
  if (come_) return;
  first_ = at::empty({kFirst}, at::kByte);
  come_ = group_.begin_receive(first_, from_);
}

Message Receiver::receive() {
  expect();
  std::exchange(come_, nullptr)();
  const auto* const bytes = static_cast<const char*>(first_.const_data_ptr());
  std::array<std::int64_t, 2> lengths{};
  std::memcpy(lengths.data(), bytes, kLengths);
  const std::int64_t begins = std::min(lengths[1], kFirst - kLengths);
  std::string body(bytes + kLengths, static_cast<std::size_t>(begins));
  if (begins < lengths[1]) {
    const at::Tensor rest = at::empty({lengths[1] - begins}, at::kByte);
    group_.receive(rest, from_);
    body.append(static_cast<const char*>(rest.const_data_ptr()), rest.nbytes());
  }
  const std::string_view text = std::string_view(body).substr(0, lengths[0]);
  Reader reader(device_, std::string_view(body).substr(lengths[0]));
  Message message = read_header(core::parse_json(text, "a message of the pipeline"), &reader);
  for (const at::Tensor& tensor : reader.tensors) group_.receive(tensor, from_);
  return message;
}

}  // namespace haul::distributed
