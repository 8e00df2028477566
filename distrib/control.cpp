#include "distrib/control.hpp"

#include <algorithm>
#include <limits>

#include "distrib/imagined.hpp"
#include "distrib/mpi.hpp"
#include "kernels/base/error.hpp"

namespace terrace {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(Exit::fault, std::string(call) + " failed: " + text);
}

MPI_Op mpi_op(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return MPI_SUM;
    case Reduce::min:
      return MPI_MIN;
    case Reduce::max:
      return MPI_MAX;
    case Reduce::bit_xor:
      return MPI_BXOR;
    case Reduce::bit_or:
      return MPI_BOR;
  }
  return MPI_OP_NULL;
}

namespace {

template <class T>
void reduce_in_place(const Control::State& ranks, T* data, std::size_t count, MPI_Datatype type,
                     Reduce op) {
  if (ranks.imagined && op == Reduce::sum)
    for (std::size_t i = 0; i < count; ++i) data[i] *= T(ranks.size);
  if (ranks.is_alone()) return;
  constexpr std::size_t piece = std::size_t(1) << 27;
  for (std::size_t from = 0; from < count; from += piece)
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, data + from, int(std::min(piece, count - from)), type,
                            mpi_op(op), ranks.comm),
              "MPI_Allreduce");
}

}  // namespace

Control::State::State() = default;
Control::State::~State() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

Control Control::State::duplicate(MPI_Comm from) {
  auto state = std::make_shared<Control::State>();
  check_mpi(MPI_Comm_dup(from, &state->comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(state->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(state->comm, &state->rank);
  MPI_Comm_size(state->comm, &state->size);
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(state->comm, MPI_COMM_TYPE_SHARED, state->rank, MPI_INFO_NULL, &host),
      "MPI_Comm_split_type");
  MPI_Comm_rank(host, &state->local_rank);
  MPI_Comm_size(host, &state->local_size);
  state->host = state->rank;
  check_mpi(MPI_Bcast(&state->host, 1, MPI_INT, 0, host), "MPI_Bcast");
  MPI_Comm_free(&host);
  return Control(std::move(state));
}

Control::Control() : Control(State::duplicate(MPI_COMM_WORLD)) {}
Control Control::self() { return State::duplicate(MPI_COMM_SELF); }
Control Control::alone() { return Control(std::make_shared<State>()); }
int Control::rank() const { return state_->rank; }
int Control::size() const { return state_->size; }
int Control::local_rank() const { return state_->local_rank; }
int Control::host() const { return state_->host; }
int Control::local_size() const { return state_->local_size; }
void Control::barrier() const {
  if (!state_->is_alone()) check_mpi(MPI_Barrier(state_->comm), "MPI_Barrier");
}

Index Control::reduce(Index value, Reduce op) const {
  reduce_in_place(*state_, &value, 1, MPI_INT64_T, op);
  return value;
}
double Control::reduce(double value, Reduce op) const {
  reduce_in_place(*state_, &value, 1, MPI_DOUBLE, op);
  return value;
}
void Control::reduce(std::vector<Index>& values, Reduce op) const {
  reduce_in_place(*state_, values.data(), values.size(), MPI_INT64_T, op);
}
void Control::reduce(std::vector<double>& values, Reduce op) const {
  reduce_in_place(*state_, values.data(), values.size(), MPI_DOUBLE, op);
}
void Control::reduce(std::vector<Word>& values, Reduce op) const {
  reduce_in_place(*state_, values.data(), values.size(), MPI_UINT64_T, op);
}

void Control::broadcast(void* data, Index bytes, int root) const {
  if (state_->is_alone()) return;
  constexpr Index piece = Index(1) << 30;
  for (Index from = 0; from < bytes; from += piece)
    check_mpi(MPI_Bcast(static_cast<char*>(data) + from, int(std::min(piece, bytes - from)),
                        MPI_BYTE, root, state_->comm),
              "MPI_Bcast");
}
std::string Control::broadcast(const std::string& text, int root) const {
  Index length = Index(text.size());
  broadcast(&length, sizeof length, root);
  std::string result = text;
  result.resize(std::size_t(length));
  broadcast(result.data(), length, root);
  return result;
}

std::vector<Index> Control::gather_all(Index value) const {
  std::vector<Index> all(static_cast<std::size_t>(size()), value);
  if (state_->is_alone()) return all;
  // NOLINTNEXTLINE(mpi-type-mismatch)
  check_mpi(MPI_Allgather(&value, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, state_->comm),
            "MPI_Allgather");
  return all;
}
std::vector<std::string> Control::gather_all(const std::string& text) const {
  if (state_->is_alone()) return std::vector<std::string>(std::size_t(size()), text);
  std::vector<std::string> all;
  all.reserve(std::size_t(size()));
  for (int root = 0; root < size(); ++root)
    all.push_back(broadcast(rank() == root ? text : "", root));
  return all;
}

Control imagined(const Control& here, int ranks, int per_host) {
  if (here.size() > 1)
    throw Error(Exit::internal, "ranks are imagined by one; distrib/control.cpp");
  const Control control = Control::State::duplicate(mpi_comm(here));
  Control::State& state = control.state();
  state.size = ranks;
  state.local_size = std::min(ranks, per_host);
  state.imagined = true;
  return control;
}
bool is_imagined(const Control& control) { return control.state().imagined; }

}  // namespace terrace
