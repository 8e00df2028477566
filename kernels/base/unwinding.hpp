// While an error unwinds one rank, memory and streams are given back; on a GPU that may wait for a
// collective whose other ranks wait for this one, for ever. Such waits are marked, so that another
// thread can see them and end the job.
#pragma once
#include <string>

namespace terrace {

/// Around a call in a destructor that may wait for a device. Does nothing unless an exception is
/// on its way in this thread; nor when all ranks have agreed on it, since such a wait ends.
class MayWait {
 public:
  MayWait() noexcept;
  ~MayWait();
  MayWait(const MayWait&) = delete;
  MayWait& operator=(const MayWait&) = delete;

 private:
  bool marked_ = false;
};

/// Seconds that a marked call has lasted so far; 0 where there is none. Any thread.
double unwinding_seconds();

/// Every Error's message is noted; the last one. Any thread.
void note_error(const std::string& message, bool agreed) noexcept;
std::string last_error();

}  // namespace terrace
