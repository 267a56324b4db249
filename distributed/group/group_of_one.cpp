#include "distributed/group/group.h"

namespace haul::distributed {
namespace {

class GroupOfOne final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& backend() const override { return none_; }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return {tensor}; }
  at::Tensor broadcast(const at::Tensor& tensor, int /*from*/) override { return tensor; }
  at::Tensor sum(const at::Tensor& tensor) override { return tensor; }
  void barrier() override {}

 private:
  std::string none_;
};

}  // namespace

std::unique_ptr<Group> make_group_of_one() {
  return std::make_unique<GroupOfOne>();
}

}  // namespace haul::distributed
