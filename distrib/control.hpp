// Who we are among the ranks, and small host-side agreements. Always MPI.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/backend.hpp"

namespace terrace {

enum class Reduce { sum, min, max, bit_xor, bit_or };

/// A group of ranks. Copies share the communicator. Every member call is collective.
class Control {
 public:
  Control();                            ///< a private duplicate of MPI_COMM_WORLD; needs a Session
  [[nodiscard]] static Control self();  ///< this rank alone
  /// One process that has started no MPI, and calls none; distrib/mpi.hpp: control_of() for a
  /// communicator of the caller's.
  [[nodiscard]] static Control alone();
  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int local_rank() const;  ///< number among the ranks of this host
  [[nodiscard]] int local_size() const;
  [[nodiscard]] int host() const;  ///< the first rank of this host, which names the host
  void barrier() const;
  [[nodiscard]] Index reduce(Index value, Reduce op) const;  ///< the result on every rank
  [[nodiscard]] double reduce(double value, Reduce op) const;
  void reduce(std::vector<Index>& values, Reduce op) const;
  void reduce(std::vector<double>& values, Reduce op) const;
  void reduce(std::vector<Word>& values, Reduce op) const;
  [[nodiscard]] std::string broadcast(const std::string& text, int root) const;
  void broadcast(void* data, Index bytes, int root) const;
  [[nodiscard]] std::vector<Index> gather_all(Index value) const;  ///< one from every rank
  [[nodiscard]] std::vector<std::string> gather_all(const std::string& text) const;
  struct State;
  [[nodiscard]] State& state() const { return *state_; }  ///< distrib/mpi.hpp

 private:
  friend struct State;
  explicit Control(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace terrace
