// Method, parts and width of a band factorization: all of it is chosen here.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/base/buffer.hpp"
#include "src/band/mixed.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::band {

enum class BandMethod { tile_columns, one_end, two_ends, partition, streamed, mixed };
std::string to_string(BandMethod method);

/// What is asked for.
struct BandRequest {
  Index n = 0, half_bandwidth = 0, nrhs = 1;
  int ranks = 1;
  std::string method = "auto";  ///< or tile-columns, one-end, two-ends, partition, streamed
  Index parts = 0;              ///< of a partition, 1 or 2 ends of streamed; 0: the plan's choice
  Index block = 0;              ///< width; 0: the plan's choice
  double end_weight = 0;        ///< rows of an end part over those of an inner part; 0: the plan's
  Index device_bytes = 0;       ///< memory for the matrix, 0: enough
  Index host_bytes = 0;         ///< likewise, for a streamed one: this rank's share of its host's
  bool lapack_factor = false;   ///< the factor is LAPACK's: one end
  bool stored = false;          ///< likewise, and it is there already
  bool tile_by_tile = false;    ///< streamed so: src/band/window.hpp
  bool in_steps = false;        ///< checkpoints or check sums need them: not in one launch
  bool mixed = false;           ///< in mixed precision, where that is possible
  bool check = true;            ///< memory of mixed precision is with that of the check
  [[nodiscard]] bool open() const { return method.empty() || method == "auto"; }
  [[nodiscard]] bool in_window() const { return tile_by_tile || ranks > 1; }  ///< if streamed
};

struct BandPlan {
  BandMethod method = BandMethod::tile_columns;
  BandShape shape;  ///< width and reach of the tile columns
  int ranks = 1;
  Index separator = 0;        ///< s, a multiple of the width
  std::vector<Index> begin;   ///< first row of each part, then n; empty with tile columns
  BandShape reduced;          ///< the separators' system; n = 0 with one part
  bool tile_by_tile = false;  ///< streamed so, on any number of ranks: src/band/window.hpp
  Index kept = 0;        ///< slabs of a streamed end, or own tile columns of a window, that the
                         ///< host keeps, and a file all; 0: all
  bool at_once = false;  ///< tile columns of one rank in one launch: band_cholesky_at_once()
  std::vector<std::string> reasons;
  std::string note;  ///< why it is not what was asked for, or was tried before

  [[nodiscard]] Index parts() const { return Index(begin.size()) - 1; }
  [[nodiscard]] Index per_rank() const { return ceil_div(parts(), ranks); }
  [[nodiscard]] int owner(Index p) const { return int(p / per_rank()); }
  [[nodiscard]] Range parts_of(int rank) const {
    const Index first = std::min(parts(), rank * per_rank());
    return {first, std::min(parts(), first + per_rank()) - first};
  }
  [[nodiscard]] Range rows_of(int rank) const {
    const Range own = parts_of(rank);
    const Index first = begin[std::size_t(own.first)];
    return {first, begin[std::size_t(own.end())] - first};
  }
  /// Rows of part p and of the separator behind it.
  [[nodiscard]] Range rows(Index p) const {
    return {begin[std::size_t(p)], begin[std::size_t(p + 1)] - begin[std::size_t(p)]};
  }
  /// Columns of the matrix that part p reads: those of the separator before it too.
  [[nodiscard]] Range columns(Index p) const {
    const Index before = p > 0 ? separator : 0;
    return {rows(p).first - before, rows(p).count + before};
  }
  [[nodiscard]] bool last(Index p) const { return p + 1 == parts(); }
  [[nodiscard]] bool reversed(Index p) const { return last(p) && p > 0; }
  [[nodiscard]] bool has_arrow(Index p) const { return p > 0 && !last(p); }
  [[nodiscard]] Index tiles(Index p) const {
    return ceil_div(rows(p).count - (last(p) ? 0 : separator), shape.width);
  }
  [[nodiscard]] Index window() const { return parts() > 1 ? separator / shape.width : 0; }
  /// Rows of padding: before a reversed part's first row, behind a single part's last.
  [[nodiscard]] Index padding(Index p) const {
    return last(p) ? tiles(p) * shape.width - rows(p).count : 0;
  }
};

/// Throws agreed usage errors that need no matrix.
void check_request(const BandRequest& request);
/// The one place that chooses method, parts and width. Throws agreed usage errors.
template <class B>
BandPlan plan_band(const BandRequest& request);
/// What goes on where `failed`, a plan of `request`, gave up: FP64 after mixed precision, one end
/// after parts, as these cannot know the leading minor that fails first. `why`: for its note.
template <class B>
BandPlan plan_instead(BandRequest request, const BandPlan& failed, const std::string& why);

/// Notes nine tenths of the least memory that a rank has free on its GPU at this moment, and the
/// least share of a host that may have to hold the matrix instead. Collective.
template <class B>
void note_memory(const Context<B>& c, BandRequest& request) {
  if constexpr (std::is_same_v<B, Cuda>)
    request.device_bytes = Index(0.9 * c.control.reduce(double(c.device.free_bytes), Reduce::min));
  const Index host = host_room().share(c.control.local_size());
  request.host_bytes = std::max<Index>(1, c.control.reduce(host, Reduce::min));
}

/// Bytes of memory of the backend that mixed precision needs on the rank with most: the matrix in
/// FP64 and the check, what it adds, the right-hand sides, what the separator of two ends takes.
struct MixedNeeds {
  Index matrix = 0, check = 0, rows = 0, separator = 0;
  MixedMemory mixed;
  [[nodiscard]] Index total() const { return matrix + check + mixed.total() + rows + separator; }
};
template <class B>
MixedNeeds mixed_needs(const BandPlan& plan, Index nrhs, bool check);

}  // namespace terrace::band
