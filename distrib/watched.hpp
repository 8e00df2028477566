// Things that may fail while no rank is lost, and that the heartbeat's thread looks at.
#pragma once
#include <functional>
#include <memory>
#include <string>

namespace terrace {

/// Something that may fail while no rank is lost: `look` is called about once a second by the
/// heartbeat's thread and returns the failure or nothing, `abort` before this rank ends suddenly.
/// Taken away when this object dies.
class Watched {
 public:
  Watched(std::function<std::string()> look, std::function<void()> abort);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  std::shared_ptr<void> entry_;
};

/// The first failure that one of them reports; nothing where none does, or they are being changed.
std::string failure_of_watched();
/// Runs every abort() for a second at most.
void abort_watched();

}  // namespace terrace
