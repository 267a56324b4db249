#include "haul/torch/share_work.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "distributed/group/state.h"

namespace haul {
namespace {

class Worker {
 public:
  Worker(const PartialState& state, const SharedWork& work)
      : main_(state.is_main_process()),
        group_(*state.state().group),
        work_(work),
        name_(fmt::format("work/{}", state.state().works++)) {}

  std::int64_t run() {
    while (work_.cancel == nullptr || !work_.cancel->load()) {
      const std::int64_t task = group_.add(name_ + "/next", 1) - 1;
      if (task >= work_.count) break;
      deliver(task, work_.task(task));
      const std::int64_t done = group_.add(name_ + "/done", 1);
      if (!main_) continue;
      show();
      if (work_.progress) work_.progress(done);
    }
    group_.barrier();  // notices a process that has ended
    if (main_) show();
    return shown_;
  }

 private:
  void deliver(std::int64_t task, std::string result) {
    if (main_) {
      own_[task] = std::move(result);
    } else {
      group_.post(fmt::format("{}/{}", name_, task), result);
    }
  }

  void show() {
    for (; shown_ < work_.count; ++shown_) {
      auto own = own_.extract(shown_);
      const std::optional<std::string> result =
          own ? std::move(own.mapped()) : group_.take(fmt::format("{}/{}", name_, shown_));
      if (!result) return;
      work_.result(shown_, *result);
    }
  }

  bool main_;
  distributed::Group& group_;
  const SharedWork& work_;
  std::string name_;
  std::map<std::int64_t, std::string> own_;  // of the main process, not shown yet
  std::int64_t shown_ = 0;
};

}  // namespace

std::int64_t share_work(const PartialState& state, const SharedWork& work) {
  return Worker(state, work).run();
}

}  // namespace haul
