#include <algorithm>
#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "core/formats/sharded_writer.h"
#include "haul/error.h"
#include "haul/torch/dispatch.h"
#include "runtime/dispatch/interception.h"
#include "runtime/dispatch/model_tensors.h"

namespace haul {

void save_model(const ModelRef& model, const std::filesystem::path& folder, Bytes max_shard_size) {
  const at::NoGradGuard no_gradients;
  const runtime::ModelTensors tensors = runtime::read_model(model);
  std::vector<core::HeaderTensor> headers;
  std::vector<at::Tensor> values;
  std::unordered_set<const void*> saved;  // a shared tensor once, under its first name
  for (const runtime::ModelTensor& item : tensors.all) {
    if (item.tensor.is_meta()) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}' has no value to save", item.name));
    }
    if (!saved.insert(item.tensor.unsafeGetTensorImpl()).second) continue;
    headers.push_back(
        {item.name, runtime::to_dtype(item.tensor.scalar_type()), item.tensor.sizes().vec()});
    values.push_back(item.tensor);
  }
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) {
    throw Error(ErrorKind::kResource,
                fmt::format("{}: cannot make the folder: {}", folder.string(), code.message()));
  }
  core::write_shards(
      folder, headers, {{"format", "pt"}}, core::plan_shards(headers, max_shard_size),
      [&](std::size_t i, core::SafetensorsWriter& writer) {
        // An offloaded weight comes for this one op, as for any.
        const at::Tensor kept = at::empty(
            values[i].sizes(), at::TensorOptions(c10::kCPU).dtype(values[i].scalar_type()));
        kept.copy_(values[i]);
        writer.write({static_cast<const std::byte*>(kept.const_data_ptr()), kept.nbytes()});
      });
}

}  // namespace haul
