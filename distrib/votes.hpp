// What the ranks ask for, agreed without making anybody wait.
#pragma once
#include <memory>

#include "distrib/control.hpp"

namespace terrace {

/// Bits that ranks vote for between the steps of a loop. The result of a poll is the union of the
/// bits of the poll before it, so a rank waits only for ranks more than a step behind. Cost: one
/// non-blocking all-reduce of 8 bytes a poll.
class Votes {
 public:
  explicit Votes(const Control& control);
  ~Votes();  ///< collective
  Votes(const Votes&) = delete;
  Votes& operator=(const Votes&) = delete;
  /// Collective: the same number of calls on all ranks. On one rank: `mine`.
  [[nodiscard]] Word poll(Word mine);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace
